"""One execution from request to result: runtimes, limits, compile, run, outcome.

Nothing here speaks HTTP; what the kernel said is in `jail.Facts`, what it means is decided here.
"""
