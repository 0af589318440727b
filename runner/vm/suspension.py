"""Notices that the VM was suspended, when nobody told us.

CLOCK_BOOTTIME counts the time in which the system was suspended and CLOCK_MONOTONIC does not, so
their distance grows by exactly that. (A hypervisor that simply stops the VM stops both clocks: then
only the platform's hook can tell.)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

#: Seconds between two looks.
INTERVAL = 1.0
#: Seconds of distance that count as a suspend; reading two clocks one after the other is noise.
JUMP = 0.1


def distance() -> float:
    """Seconds that the system has spent suspended since it booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class SuspensionWatch:
    """Calls `on_resume` with the seconds of each suspend that it notices."""

    def __init__(
        self,
        on_resume: Callable[[float], Awaitable[None]],
        *,
        read: Callable[[], float] = distance,
        interval: float = INTERVAL,
    ) -> None:
        self._on_resume = on_resume
        self._read = read
        self._interval = interval
        self._seen = read()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts looking."""
        self._task = asyncio.create_task(self._watch(), name="suspension watch")

    async def stop(self) -> None:
        """Stops looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def told(self) -> None:
        """The platform's hook has already told of what there is to see now."""
        self._seen = self._read()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            now = self._read()
            suspended, self._seen = now - self._seen, now
            if suspended > JUMP:
                log.warning("the VM was suspended", extra={"seconds": round(suspended, 3)})
                await self._on_resume(suspended)
