"""How late the event loop is: what else it did when something was due.

Probed only while requests are under way: a daemon that nobody talks to does not wake up for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

#: Seconds between two probes. A loop that is held up for longer than this is always seen.
INTERVAL = 0.01


class LoopLag:
    """The probe of one loop."""

    def __init__(self, note: Callable[[float], None]) -> None:
        """`note` is given each lag, in seconds."""
        self._note = note
        self._watchers = 0
        self._due = 0.0
        self._probe: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Probes meanwhile."""
        loop = asyncio.get_running_loop()
        self._watchers += 1
        if self._watchers == 1:
            self._arm(loop)
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers and self._probe is not None:
                self._probe.cancel()
                # One that was due by now was held up until the very end.
                if loop.time() > self._due:
                    self._note(loop.time() - self._due)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + INTERVAL
        self._probe = loop.call_at(self._due, self._fire, loop)

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._note(max(0.0, loop.time() - self._due))
        self._arm(loop)
