"""Restoring: archive bytes in, a verified tree in staging out. Whoever called it commits it.

Two threads: one inflates, one reads the tar and writes files; compressed chunks come in over a
bounded hand-over. The workspace is not touched here.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from runner.checkpoint import gzipframe, sidecar, tarformat
from runner.checkpoint.handover import AbandonedError, Block, Handover, HandoverFromLoop, Stage
from runner.checkpoint.limits import CHUNK, Limits
from runner.checkpoint.sidecar import Sidecar
from runner.checkpoint.unpack import protect_inputs, refusal, unpack
from runner.errors import CheckpointCorrupt, Internal
from runner.finish import finish
from runner.workspace.dataroot import Owner
from runner.workspace.tree import Tree

_AHEAD = 8
_UNPACKING_MODE = 0o700

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What an archive has to be sealed with and for, and who gets its files."""

    session: str
    key: bytes
    owner: Owner
    limits: Limits


class Restore:
    """One restore, fed from the event loop; an async context manager.

    Leaving it, at any point, waits for its threads and removes what is in staging under its name:
    an unpacked tree that nobody committed, or the old workspace that a commit put there.
    """

    def __init__(self, staging: Tree, name: bytes, expected: Expected) -> None:
        """`name` is free in `staging`."""
        self._staging = staging
        self._name = name
        self._expected = expected
        self._incoming = HandoverFromLoop(_AHEAD)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="checkpoint-restore")
        self._result: Future[Sidecar]

    async def __aenter__(self) -> Self:
        self._result = self._worker.submit(
            restore, self._incoming, self._staging, self._name, self._expected
        )
        return self

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

    async def finish(self) -> Sidecar:
        """The archive has ended. The verified sidecar, or what `restore` raises."""
        self._incoming.end()
        return await asyncio.wrap_future(self._result)

    async def __aexit__(self, *_: object) -> None:
        # Without `finish` the client is gone: what the reader has seen is not the whole archive.
        self._incoming.end(CheckpointCorrupt("the archive is truncated"))
        await finish(self._leave())
        self._worker.shutdown()  # Its thread has nothing left to do: no wait.

    async def _leave(self) -> None:
        """Clears staging behind `restore`, on the same single thread."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._worker, _discard, self._staging, self._name)


def restore(incoming: Handover, staging: Tree, name: bytes, expected: Expected) -> Sidecar:
    """Unpacks the archive as `name` in `staging` and verifies it. Blocks.

    On success everything there is the session's and on the disk, read-only inputs are root's. On
    failure nothing of that name is left. Raises `CheckpointRefused`, `CheckpointTooLarge`,
    `InsufficientStorage` or `Internal`.
    """
    try:
        with staging.make_dir((name,), uid=0, gid=0, mode=_UNPACKING_MODE) as target:
            return _unpack_verified(incoming, target, expected)
    except OSError as error:
        _discard(staging, name)
        raise refusal(error) from None
    except BaseException:
        _discard(staging, name)
        raise
    finally:
        incoming.abandon()


def _unpack_verified(incoming: Handover, target: Tree, expected: Expected) -> Sidecar:
    limits = expected.limits
    total = gzipframe.CompressedSum()
    plain = gzipframe.decompress(incoming, max_bytes=limits.compressed_bytes, total=total)
    stage = Stage(plain, Handover(_AHEAD), name="checkpoint-inflate", upstream=incoming)
    with stage as blocks:
        reader = unpack(blocks, target, expected.owner, limits)
    assert reader.facts is not None
    verified = sidecar.open_sealed(
        reader.sidecar, reader.facts, key=expected.key, session=expected.session
    )
    last = tarformat.last_member(sidecar.MEMBER_NAME, reader.sidecar)
    before = verified.compressed_crc32
    if before is not None and not total.ends_with(last, before):
        raise CheckpointCorrupt("its compressed bytes are not those that were saved")
    protect_inputs(target, verified.primed)
    target.sync()
    return verified


def _discard(staging: Tree, name: bytes) -> None:
    try:
        staging.remove((name,))
    except OSError:
        # It is in nobody's way: only root gets into staging, and the next start sweeps it.
        log.exception("staging could not be cleared")
