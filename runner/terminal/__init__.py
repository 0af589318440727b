"""The session's terminal: a login shell in a long-lived jail, and the clients that come and go.

Nothing here speaks HTTP, and nothing here decides whether a session may be used: `session` does.
"""
