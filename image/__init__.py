"""What is in the image: the runtimes it offers and the checks that say whether it works.

May import `jail`, never `runner`.
"""
