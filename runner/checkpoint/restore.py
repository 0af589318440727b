"""Restoring: archive bytes in, a verified tree in staging out. Whoever called it commits it.

Two threads: one inflates, one reads the tar and writes files; compressed chunks come in over a
bounded hand-over. The workspace is not touched here. What an archive means is `chain`'s business.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from runner.checkpoint.chain import Chain, Expected, Restored
from runner.checkpoint.handover import AbandonedError, Block, Handover, HandoverFromLoop
from runner.checkpoint.limits import CHUNK
from runner.checkpoint.sidecar import Sidecar
from runner.errors import CheckpointCorrupt, Internal
from runner.finish import finish
from runner.workspace.tree import Tree

_AHEAD = 8


class Restore:
    """One restore, fed from the event loop; an async context manager.

    Leaving it, at any point, waits for its threads and removes what is in staging under its name:
    an unpacked tree that nobody committed, or the old workspace that a commit put there.
    """

    def __init__(self, staging: Tree, name: bytes, expected: Expected) -> None:
        """`name` is free in `staging`."""
        self._chain = Chain(staging, name, expected)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="checkpoint-restore")
        self._incoming: HandoverFromLoop
        self._result: Future[Sidecar]

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    def _begin(self) -> None:
        self._incoming = HandoverFromLoop(_AHEAD)
        self._result = self._worker.submit(self._chain.take, self._incoming)

    async def feed(self, chunk: Block) -> None:
        """Takes compressed bytes, at most `CHUNK` at a time, and waits while there is no room.

        Raises what the archive deserves as soon as it is known, which may be before its end.
        """
        assert len(chunk) <= CHUNK
        try:
            await self._incoming.put_async(chunk)
        except AbandonedError:
            await asyncio.wrap_future(self._result)
            raise Internal("the restore ended early") from None

    async def pause(self) -> Sidecar:
        """An archive has ended: its verified sidecar, or what it deserves.

        `proceed`, `complete` or the end of the context comes next.
        """
        self._incoming.end()
        return await asyncio.wrap_future(self._result)

    def proceed(self) -> None:
        """Another archive follows."""
        self._begin()

    async def complete(self) -> Restored:
        """No archive follows. What is in staging now, or what `Chain` raises."""
        return await asyncio.wrap_future(self._worker.submit(self._chain.complete))

    async def finish(self) -> Restored:
        """The only archive has ended."""
        await self.pause()
        return await self.complete()

    async def __aexit__(self, *_: object) -> None:
        # Without `finish` the client is gone: what the reader has seen is not the whole archive.
        self._incoming.end(CheckpointCorrupt("the archive is truncated"))
        try:
            await finish(self._leave())
        finally:
            self._worker.shutdown()  # Its thread has nothing left to do: no wait.

    async def _leave(self) -> None:
        """Clears staging behind the chain, on the same single thread."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._worker, self._chain.discard)


def restore(incoming: Handover, staging: Tree, name: bytes, expected: Expected) -> Sidecar:
    """Unpacks one full archive as `name` in `staging` and verifies it. Blocks.

    On success everything there is the session's and on the disk, read-only inputs are root's. On
    failure nothing of that name is left. Raises `CheckpointRefused`, `CheckpointTooLarge`,
    `InsufficientStorage` or `Internal`.
    """
    chain = Chain(staging, name, expected)
    chain.take(incoming)
    return chain.complete().sidecar
