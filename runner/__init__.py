"""The daemon: HTTP, sessions, files, checkpoints, executions.

What runs untrusted code lives in `jail`; what is in the image (runtimes, hooks, checks) lives in
`image`. This package may import both; neither imports it.
"""
