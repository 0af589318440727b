"""The file server's client: objects down, objects up, bounded in time, size and tries.

It knows object names and bytes. It knows nothing of workspaces, sessions or results.
"""
