"""A full archive and the deltas behind it: unpacked over each other in staging, each one verified.

What fails leaves nothing behind, at whichever archive it fails. Blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from runner.checkpoint import gzipframe, inventory, sidecar, tarformat
from runner.checkpoint.deltahead import DeltaHead
from runner.checkpoint.handover import Handover, Stage
from runner.checkpoint.limits import Limits
from runner.checkpoint.reader import ArchiveReader
from runner.checkpoint.sidecar import Sidecar
from runner.checkpoint.unpack import CHAIN, apply, protect_inputs, refusal, unpack
from runner.errors import CheckpointCorrupt, CheckpointUnauthentic
from runner.workspace.dataroot import Owner
from runner.workspace.tree import Tree

_AHEAD = 8
_UNPACKING_MODE = 0o700

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What an archive has to be sealed with and for, and who gets its files.

    `may_start_over`: a full archive behind another one begins anew, else it is refused.
    """

    session: str
    key: bytes
    owner: Owner
    limits: Limits
    may_start_over: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """A tree in staging that is whole. `entries` and `bytes` are those of a full archive of it."""

    sidecar: Sidecar
    entries: int
    bytes: int
    archives: int


class Chain:
    """One chain of archives, each given to `take` in its order, and then `complete`."""

    def __init__(self, staging: Tree, name: bytes, expected: Expected) -> None:
        """`name` is free in `staging`; the tree will stand there."""
        self._staging = staging
        self._name = name
        self._expected = expected
        self._last: Sidecar | None = None
        self._archives = 0

    def take(self, incoming: Handover) -> Sidecar:
        """Unpacks the next archive and verifies it.

        Raises `CheckpointRefused`, `CheckpointTooLarge`, `InsufficientStorage` or `Internal`.
        """
        try:
            return self._guarded(lambda: self._take(incoming))
        finally:
            incoming.abandon()

    def complete(self) -> Restored:
        """Nothing follows. Everything is the session's and on the disk, read-only inputs are
        root's. Raises as `take` does."""
        return self._guarded(self._complete)

    def discard(self) -> None:
        """Removes what stands in staging under the chain's name."""
        try:
            self._staging.remove((self._name,))
        except OSError:
            # It is in nobody's way: only root gets into staging, and the next start sweeps it.
            log.exception("staging could not be cleared")

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            self.discard()
            raise refusal(error) from None
        except BaseException:
            self.discard()
            raise

    def _take(self, incoming: Handover) -> Sidecar:
        limits = self._expected.limits
        total = gzipframe.CompressedSum()
        plain = gzipframe.decompress(incoming, max_bytes=limits.compressed_bytes, total=total)
        stage = Stage(plain, Handover(_AHEAD), name="checkpoint-inflate", upstream=incoming)
        with stage as blocks:
            reader = ArchiveReader(blocks, limits)
            head = reader.head()
            self._place(reader, head)
        verified = self._verified(reader, total)
        self._check_link(head, verified)
        self._last = verified
        self._archives += 1
        return verified

    def _place(self, reader: ArchiveReader, head: DeltaHead | None) -> None:
        owner, last = self._expected.owner, self._last
        if head is not None:
            if last is None or last.state != head.base:
                raise CheckpointCorrupt("a delta is not behind what it builds on", reason=CHAIN)
            with self._staging.subtree((self._name,)) as target:
                apply(reader, head, target, owner)
            return
        if last is not None:
            if not self._expected.may_start_over:
                raise CheckpointCorrupt("a full archive is not the first", reason=CHAIN)
            self._staging.remove((self._name,))
            self._last, self._archives = None, 0
        with self._staging.make_dir((self._name,), uid=0, gid=0, mode=_UNPACKING_MODE) as target:
            unpack(reader, target, owner)

    def _verified(self, reader: ArchiveReader, total: gzipframe.CompressedSum) -> Sidecar:
        expected = self._expected
        assert reader.facts is not None
        verified = sidecar.open_sealed(
            reader.sidecar, reader.facts, key=expected.key, session=expected.session
        )
        last = tarformat.last_member(sidecar.MEMBER_NAME, reader.sidecar)
        before = verified.compressed_crc32
        if before is not None and not total.ends_with(last, before):
            raise CheckpointCorrupt("its compressed bytes are not those that were saved")
        return verified

    def _check_link(self, head: DeltaHead | None, verified: Sidecar) -> None:
        """What a head said before it could be believed, against the seal."""
        sealed = verified.delta
        if head is None and sealed is None:
            return
        if (
            head is None
            or sealed is None
            or (head.base, len(head.gone))
            != (
                sealed.base,
                sealed.removed,
            )
        ):
            raise CheckpointUnauthentic("a delta's seal is of another delta", reason=CHAIN)
        assert self._last is not None
        if verified.incarnation != self._last.incarnation:
            raise CheckpointCorrupt("a delta is of another incarnation", reason=CHAIN)

    def _complete(self) -> Restored:
        last = self._last
        assert last is not None
        with self._staging.subtree((self._name,)) as target:
            entries, tar_bytes = last.archive.entries, last.archive.bytes
            if last.delta is not None:
                tree, entries, tar_bytes = inventory.measure(target, self._expected.limits)
                if tree != last.delta.tree:
                    raise CheckpointCorrupt("it does not add up to what was saved", reason=CHAIN)
            protect_inputs(target, last.primed)
            target.sync()
        return Restored(last, entries, tar_bytes, self._archives)
