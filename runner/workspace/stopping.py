"""How a thread that works on files for long learns that nobody waits for it any more."""

from __future__ import annotations


class Stopped(Exception):
    """The work was asked to stop, and did so between two chunks."""


class Stop:
    """Set once, from any thread; looked at by the work between two chunks or two entries."""

    __slots__ = ("_is_asked",)

    def __init__(self) -> None:
        self._is_asked = False

    def ask(self) -> None:
        """From now on `check` raises."""
        self._is_asked = True

    def check(self) -> None:
        """Raises `Stopped` if the work is to end."""
        if self._is_asked:
            raise Stopped


#: For work that is short, or has to be finished.
NEVER = Stop()
