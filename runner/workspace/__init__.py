"""The workspace's files: names, no-follow tree operations, priming, outputs, fingerprints.

All privileged path work of the daemon is done by `tree`, which takes a directory descriptor and
one component at a time. Nothing here knows of HTTP, jails or session states.
"""
