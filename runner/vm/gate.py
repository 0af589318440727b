"""The gate of the data root: who works in jobs/, staging/ and inputs/ without holding the session.

Stateless executions, uploads, pushes and probes of inputs go through it. What clears those
directories closes it first, so that it removes only what belongs to nobody any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from runner.errors import Internal, Overloaded, RunnerError

#: Seconds for all inside to leave once they were turned out: a jail has to be reaped, and what its
#: program made has to be removed, which takes about two minutes for 10 million files.
LEAVE_TIMEOUT = 150.0


@dataclass(eq=False, slots=True)
class _Visit:
    task: asyncio.Task[object]
    leave: Callable[[], None] | None
    was_cancelled: bool = False

    def turn_out(self) -> None:
        if self.leave is not None:
            self.leave()
        elif not self.was_cancelled:
            self.was_cancelled = True
            self.task.cancel()


class Gate:
    """One per daemon."""

    def __init__(self) -> None:
        self._inside: set[_Visit] = set()
        #: By how many it is held closed.
        self._closed = 0
        self._left = asyncio.Event()

    def __len__(self) -> int:
        """How many are inside."""
        return len(self._inside)

    @contextlib.asynccontextmanager
    async def inside(
        self,
        refusal: type[RunnerError] = Overloaded,
        *,
        leave: Callable[[], None] | None = None,
    ) -> AsyncIterator[None]:
        """Raises a `refusal` while the gate is closed, and when it is closed meanwhile.

        With `leave`, that is called when it is closed, to bring the block to its own end; without,
        the block is cancelled.
        """
        if self._closed:
            raise _refused(refusal)
        task = asyncio.current_task()
        assert task is not None
        visit = _Visit(task, leave)
        self._inside.add(visit)
        try:
            yield
        except asyncio.CancelledError:
            if visit.was_cancelled and task.uncancel() == 0:
                raise _refused(refusal) from None
            raise
        finally:
            self._inside.discard(visit)
            self._left.set()

    @contextlib.asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Nobody gets in meanwhile, and who is inside is turned out: see `emptied`."""
        self._closed += 1
        try:
            for visit in list(self._inside):
                visit.turn_out()
            yield
        finally:
            self._closed -= 1

    async def emptied(self) -> None:
        """Waits until nobody is inside; raises `Internal` if that takes too long."""
        deadline = time.monotonic() + LEAVE_TIMEOUT
        while self._inside:
            self._left.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._left.wait()
            except TimeoutError:
                raise Internal("what works beside the session did not end in time") from None


def _refused(refusal: type[RunnerError]) -> RunnerError:
    return refusal("the VM is being terminated", reason="terminating", retry_after=1)
