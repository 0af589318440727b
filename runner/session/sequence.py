"""A restore over several requests: between two of them a task of its own holds the session.

A client that does not come back in time has failed it, as one that leaves in the middle of a body
has: the workspace is wiped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from runner.errors import BadRequest, CheckpointCorrupt, RunnerError, SessionBusy
from runner.finish import finish
from runner.session.restoring import Restoring

#: Seconds in which the next archive has to begin to come.
NEXT_TIMEOUT = 60.0


class Sequence:
    """One sequence. Made by the request that begins it."""

    def __init__(self, begun: AbstractAsyncContextManager[Restoring], *, key: bytes | None) -> None:
        """`begun` holds the session while it is entered; `key` is what its client gave."""
        loop = asyncio.get_running_loop()
        self._begun = begun
        self._key = key
        self._ready: asyncio.Future[Restoring] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._is_taken = False
        self._task = asyncio.create_task(self._live(), name="restore-sequence")
        # Whoever waits takes its failure; with nobody waiting the wipe has been logged.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def is_over(self) -> bool:
        """Whether it holds the session no more."""
        return self._task.done()

    async def aclose(self) -> None:
        """The daemon stops: whoever has not sent all of it has failed it."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _live(self) -> None:
        try:
            async with self._begun as restoring:
                self._ready.set_result(restoring)
                await self._over
        finally:
            if not self._ready.done():
                self._ready.cancel()

    @contextlib.asynccontextmanager
    async def turn(self, *, key: bytes | None) -> AsyncIterator[Restoring]:
        """One request's archives. What is not committed at its end waits for the next one."""
        if self._is_taken:
            raise SessionBusy("another request is sending an archive", retry_after=1)
        if key != self._key:
            raise BadRequest("the sequence was begun with another", field="X-Sidecar-Key")
        self._is_taken = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            restoring = await self._begin()
            yield restoring
        except BaseException as error:
            self._fail(error if isinstance(error, Exception) else _cut())
            await finish(self._ended())
            raise self._failure(error) from None
        if restoring.committed:
            if not self._over.done():
                self._over.set_result(None)
            # Else the session was ended meanwhile: after the commit, which was waited for.
            await finish(self._ended())
            return
        self._is_taken = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(NEXT_TIMEOUT, self._fail, _late())

    async def _begin(self) -> Restoring:
        await asyncio.wait({self._ready})
        if self._ready.cancelled():
            # It never held the session: what kept it from that.
            await self._task
        restoring = self._ready.result()
        restoring.begin_archive()
        return restoring

    def _fail(self, error: Exception) -> None:
        if not self._ready.done():
            self._task.cancel()
        elif not self._over.done():
            self._over.set_exception(error)

    async def _ended(self) -> None:
        await asyncio.wait({self._task})

    def _failure(self, error: BaseException) -> BaseException:
        """What the client is told: the session may know better what the error means."""
        if not isinstance(error, Exception):
            return error
        if self._task.cancelled():
            return SessionBusy("the VM is being terminated", retry_after=1)
        told = self._task.exception()
        return told if isinstance(told, RunnerError) else error


def _cut() -> RunnerError:
    return CheckpointCorrupt("the body is cut", reason="truncated")


def _late() -> RunnerError:
    return CheckpointCorrupt("the next archive did not come", reason="stalled")
