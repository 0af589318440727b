"""HTTP: one file per resource. Reads a request, calls one thing, writes a response. No behaviour.
"""
