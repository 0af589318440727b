"""The jail: nsjail, cgroups, network and seccomp.

A frozen `Profile` goes in, frozen `Facts` come out. Nothing here knows of HTTP, sessions or
workspaces, and nothing here decides what an outcome is called: it only measures.
"""
