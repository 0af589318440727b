"""What the jail can fail with before a command runs. Only classes: a jail that ran reports facts.

The texts are for the operator's log; they may name devices, paths and errno, so they never go to
a client.
"""

from __future__ import annotations


class JailError(Exception):
    """The jail cannot be had."""


class UnknownMachine(JailError):
    """No seccomp policy was written for this architecture."""


class NetworkUnavailable(JailError):
    """The egress network cannot be set up."""
