"""Places for executions that run at once: first come, first served, and a bounded queue behind.

For executions without a session; one with a session has the session's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from runner.errors import Overloaded

#: How many may wait, as a multiple of the places.
QUEUE_FACTOR = 8


class Slots:
    """`places` run at once; QUEUE_FACTOR times as many may wait, each at most `wait` seconds."""

    def __init__(self, places: int, *, wait: float) -> None:
        self._semaphore = asyncio.Semaphore(places)
        self._waiting = 0
        self._waiting_max = places * QUEUE_FACTOR
        self._wait = wait

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Waits for a place and holds it. Raises `Overloaded`; a cancelled wait leaves no trace."""
        if self._waiting >= self._waiting_max:
            raise Overloaded("the queue is full", retry_after=1)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait):
                await self._semaphore.acquire()
        except TimeoutError:
            raise Overloaded("no place became free in time", retry_after=1) from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._semaphore.release()
