"""The VM as a whole: its clock, its entropy, its being suspended, resumed and cloned.

Each act reports what was really done, and what could not be and why. Nothing here knows of HTTP.
"""
