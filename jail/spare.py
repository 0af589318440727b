"""Keeps nsjails started ahead, each waiting in its own cgroup for a configuration.

What a start costs most is over before it is asked for: the grace period of entering a cgroup and
nsjail's dynamic linking. A spare holds nothing of any session; taking one that is not quite ready
yet costs no more than starting afresh. Spares die with the daemon, as jails do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
from collections import deque
from collections.abc import Awaitable, Callable

from jail.spawn import Spawned, SpawnFailed

log = logging.getLogger(__name__)

#: A killed nsjail that has no jail yet ends at once.
DISCARD_TIMEOUT_S = 2.0


class Spares:
    """Up to `keep` spawned nsjails; 0 switches it off."""

    def __init__(self, make: Callable[[], Awaitable[Spawned]], *, keep: int) -> None:
        self._make = make
        self._keep = keep
        self._ready: deque[Spawned] = deque()
        self._refilling: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    async def take(self) -> Spawned | None:
        """One that waits, or None. It is the taker's from here on."""
        while self._ready:
            spare = self._ready.popleft()
            if not _has_ended(spare):
                return spare
            # Somebody killed it: it is not worth more than a line, for a fresh one is made.
            log.warning("a spare nsjail had ended")
            await discard(spare)
        return None

    def refill(self) -> None:
        """Starts making what is missing, in the background."""
        if not self._closed and len(self) < self._keep and self._refilling is None:
            self._refilling = asyncio.create_task(self._refill())
            self._refilling.add_done_callback(self._refilled)

    async def full(self) -> None:
        """Waits until what is missing has been made, or could not be made."""
        self.refill()
        if self._refilling is not None:
            await asyncio.wait({self._refilling})

    async def _refill(self) -> None:
        while len(self) < self._keep and not self._closed:
            try:
                self._ready.append(await self._make())
            except SpawnFailed as failure:
                # The next jail will fail in the same step, and say so to someone who asked.
                log.warning("no spare nsjail: %s", failure.step)
                return

    def _refilled(self, _: asyncio.Task[None]) -> None:
        self._refilling = None

    async def drop(self) -> int:
        """Ends those that wait and makes others; how many there were.

        After a VM is resumed from a snapshot, its clones' spares are one and the same process: the
        same random stack guard and addresses.
        """
        if self._refilling is not None:
            await asyncio.wait({self._refilling})
        dropped = 0
        while self._ready:
            await discard(self._ready.popleft())
            dropped += 1
        self.refill()
        return dropped

    async def aclose(self) -> None:
        """Ends all spares and makes no more."""
        self._closed = True
        await self.drop()


def _has_ended(spare: Spawned) -> bool:
    """A pidfd is readable once its process has ended."""
    poll = select.poll()
    poll.register(spare.pidfd.number, select.POLLIN)
    return bool(poll.poll(0))


async def discard(spare: Spawned) -> None:
    """Ends an nsjail that has no configuration yet, and removes its cgroup."""
    spare.kill()
    await asyncio.to_thread(_reap_and_remove, spare)


def _reap_and_remove(spare: Spawned) -> None:
    # Closed in here too: who waits for this may be cancelled, and it needs the pidfd to its end.
    with contextlib.closing(spare):
        poll = select.poll()
        poll.register(spare.pidfd.number, select.POLLIN)
        if poll.poll(DISCARD_TIMEOUT_S * 1000):
            os.waitpid(spare.pid, 0)
        spare.cgroup.remove()
