"""A restore that has begun: fed by requests, committed once, or staged until the next archive."""

from __future__ import annotations

import asyncio
import logging
from typing import Self

from runner.checkpoint.chain import Restored
from runner.checkpoint.restore import Restore
from runner.checkpoint.sidecar import Sidecar
from runner.errors import InsufficientStorage, Internal, SessionBusy
from runner.finish import finish
from runner.session.hold import Hold
from runner.workspace.dataroot import DataRoot
from runner.workspace.full import is_full

log = logging.getLogger(__name__)


class Restoring:
    """What a request feeds. Archives are fed in their order, the full one first.

    An async context manager of whoever holds the session, who may not be the one that commits:
    leaving it waits for a commit under way, and no other one begins.
    """

    def __init__(self, feeding: Restore, data: DataRoot, hold: Hold, staged: bytes) -> None:
        self._feeding = feeding
        self._data = data
        self._hold = hold
        self._staged = staged
        self._is_paused = False
        self._is_left = False
        #: Held while the workspace is being replaced.
        self._replacing = asyncio.Lock()
        #: Archives that were verified.
        self.archives = 0
        self.committed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await finish(self._leave())

    async def _leave(self) -> None:
        async with self._replacing:
            self._is_left = True

    async def feed(self, chunk: bytes) -> None:
        """Takes the archive's next bytes; raises what the archive deserves."""
        await self._feeding.feed(chunk)

    async def end_archive(self) -> None:
        """The archive has ended: verifies it. Another one may follow, after `begin_archive`."""
        await self._feeding.pause()
        self._is_paused = True
        self.archives += 1

    def begin_archive(self) -> None:
        """An archive that builds on the last one comes. Not needed for the first."""
        if self._is_paused:
            self._feeding.proceed()
            self._is_paused = False

    async def commit(self) -> Restored:
        """All archives have come: puts what they make in the workspace's place."""
        assert self._is_paused
        restored = await self._feeding.complete()
        async with self._replacing:
            if self._is_left:
                raise SessionBusy("the restore was ended meanwhile", retry_after=1)
            await finish(asyncio.to_thread(self._replace, restored.sidecar))
            self.committed = True
        return restored

    def _replace(self, sidecar: Sidecar) -> None:
        try:
            self._data.commit_workspace(self._staged)
            self._hold.replaced(primed=sidecar.primed, surfaced=sidecar.surfaced)
        except OSError as error:
            if is_full(error):
                raise InsufficientStorage("there is no room to put it in place") from error
            raise Internal("the restored files could not be put in place") from error
        try:
            # What stood there before.
            self._data.staging.remove((self._staged,))
        except OSError:
            log.exception("the replaced workspace could not be removed")
