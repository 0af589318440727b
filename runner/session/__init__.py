"""Sessions: the lifecycle table, binding, the lock, the incarnation, the sealed metadata.

Nothing here runs code or speaks HTTP.
"""
