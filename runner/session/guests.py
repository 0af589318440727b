"""Guests: what stays in the workspace beside the operations, as a terminal does.

An operation that replaces the workspace turns them out first, and goes on only when they are proven
gone; one that reads it has them stand still meanwhile. What is not proven gone when it ends is
looked at again when it has to be.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Protocol

from runner.errors import Internal, RunnerError

#: For a guest to end: a SIGKILL takes as long as the kernel needs to free the memory.
END_TIMEOUT = 10.0
#: Between two looks at what was not proven gone when it ended.
LOOK_INTERVAL = 0.1


class Guest(Protocol):
    """One guest."""

    def dismiss(self, why: RunnerError) -> None:
        """Asks it to end, and says why. Does not wait."""

    def frozen(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Holds its processes still."""

    async def gone(self) -> bool:
        """Whether nothing is left of it, looked at now."""


class Guests:
    """Those of one session."""

    def __init__(self) -> None:
        self._guests: set[Guest] = set()
        #: Those that have ended and were not proven gone.
        self._unproven: set[Guest] = set()
        self._left = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._guests)

    def add(self, guest: Guest) -> None:
        """It has come."""
        self._guests.add(guest)

    def remove(self, guest: Guest) -> None:
        """It is proven gone."""
        self._guests.discard(guest)
        self._unproven.discard(guest)
        self._left.set()

    def unproven(self, guest: Guest) -> None:
        """It has ended, and something may be left of it: a guest until that is proven gone."""
        self._unproven.add(guest)
        self._left.set()

    def dismiss(self, why: RunnerError) -> None:
        """Asks all of them to end. Does not wait."""
        for guest in list(self._guests):
            guest.dismiss(why)

    async def look_again(self) -> None:
        """Lets go of those that were not proven gone when they ended, and are gone by now."""
        for guest in list(self._unproven):
            if await guest.gone():
                self.remove(guest)

    async def turn_out(self, why: RunnerError) -> None:
        """Ends all of them. Raises `Internal` if one cannot be proven gone in END_TIMEOUT."""
        self.dismiss(why)
        deadline = time.monotonic() + END_TIMEOUT
        while True:
            self._left.clear()
            await self.look_again()
            if not self._guests:
                return
            left = deadline - time.monotonic()
            if left <= 0:
                raise Internal("a terminal could not be ended")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_INTERVAL, left)):
                    await self._left.wait()

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """All of them stand still meanwhile."""
        async with contextlib.AsyncExitStack() as stack:
            for guest in list(self._guests):
                await stack.enter_async_context(guest.frozen())
            yield
