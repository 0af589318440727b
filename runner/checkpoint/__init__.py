"""Checkpoints: the archive format, its strict reader and its writer, save and restore.

Bytes in and out of a workspace tree. Nothing here knows of HTTP or decides session states: it
says what happened, and the session decides what that means.
"""
