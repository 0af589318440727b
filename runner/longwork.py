"""Long file work, such as hashing what a program made: in few threads of its own, and stoppable.

The loop's default threads belong to what is short: a program that makes gigabytes of holes in no
time must not keep a listing, a jail's end or another program waiting. Nor may it keep the session
waiting when it has none: so there are lanes, and who is in one waits only for its like.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from runner.finish import finish
from runner.workspace.stopping import Stop

T = TypeVar("T")

#: Reading and hashing no more than this is short: some ten milliseconds.
SHORT_BYTES = 8 << 20
#: The same of a walk: no more than a listing looks at.
SHORT_ENTRIES = 20_000
#: The loop and short work go first. Linux has a niceness for each thread.
NICENESS = 10


class LongWork:
    """One lane: some threads, and whoever comes when they are busy waits in turn."""

    def __init__(self, name: str, *, threads: int) -> None:
        self._threads = ThreadPoolExecutor(
            threads, thread_name_prefix=f"long-{name}", initializer=_give_way
        )

    async def run(self, work: Callable[[Stop], T]) -> T:
        """What `work` returns or raises. Cancelled, it asks the work to stop and sees it end.

        What the work returns then is lost: it must own nothing.
        """
        stop = Stop()
        context = contextvars.copy_context()
        begun: Future[T] = self._threads.submit(context.run, work, stop)
        ending = asyncio.wrap_future(begun)
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError:
            stop.ask()
            if not begun.cancel():
                await finish(_over(ending))
            raise
        return ending.result()


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of one daemon."""

    #: Executions without a session.
    jobs: LongWork = field(default_factory=lambda: LongWork("jobs", threads=2))
    #: The session's executions: one at a time.
    session: LongWork = field(default_factory=lambda: LongWork("session", threads=1))
    #: Verifying pushed inputs.
    inputs: LongWork = field(default_factory=lambda: LongWork("inputs", threads=2))
    #: Listings with hashes.
    listings: LongWork = field(default_factory=lambda: LongWork("listings", threads=1))

    def of(self, *, lasting: bool) -> LongWork:
        """An execution's, in the session's workspace (`lasting`) or in one of its own."""
        return self.session if lasting else self.jobs


def _give_way() -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)


async def _over(ending: asyncio.Future[Any]) -> None:
    """Waits for its end. Nobody is told how it ended."""
    await asyncio.wait({ending})
    if not ending.cancelled():
        ending.exception()
