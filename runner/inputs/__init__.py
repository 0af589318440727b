"""Inputs by reference: the cache of what was pushed ahead, its reader, and where inputs come from.

Nothing here touches a workspace: what comes out are `priming.Input`s that are there and verified.
"""
