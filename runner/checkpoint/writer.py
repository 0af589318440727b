"""The tar stream of a workspace, cut into blocks of one size. Reads files, writes nowhere."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Generator, Iterable

from runner.checkpoint import deltahead, sidecar, tarformat
from runner.checkpoint.bases import Keeping
from runner.checkpoint.difference import Found
from runner.checkpoint.handover import Block
from runner.checkpoint.inventory import Inventory, Plan, against, changed
from runner.checkpoint.limits import CHUNK, Limits
from runner.checkpoint.sidecar import ArchiveFacts, DeltaFacts, SidecarFacts
from runner.checkpoint.treeindex import BaseUnusableError
from runner.workspace.descent import READ
from runner.workspace.fingerprint import RACY_NS
from runner.workspace.tree import Tree


class Reading:
    """One walk that streams what was planned. `tree` is there for a delta when it has ended."""

    def __init__(
        self, tree: Tree, planned: Plan, *, limits: Limits, keeping: Keeping | None = None
    ) -> None:
        """`keeping` is told the state's lines, and that they are whole."""
        self._tree = tree
        self._planned = planned
        self._limits = limits
        self._keeping = keeping
        self.tree = ""

    def blocks(self) -> Generator[bytearray, None, None]:
        """Every member but the sidecar. Every block but the last has `CHUNK` bytes.

        Ends well only when the state that was streamed is the planned one.
        """
        with self._keeping or contextlib.nullcontext() as keeping:
            stream = _Blocks()
            inventory = Inventory(
                self._tree, self._limits, index=keeping.add if keeping is not None else None
            )
            try:
                yield from self._members(stream, inventory)
            except (OSError, BaseUnusableError):
                raise changed() from None
            if inventory.state() != self._planned.state:
                raise changed()
            if _await_next_tick(inventory.newest_ns) and keeping is not None:
                keeping.done()
            yield stream.rest()

    def _members(self, stream: _Blocks, inventory: Inventory) -> Generator[bytearray, None, None]:
        delta = self._planned.delta
        # A walk that stops early is kept by its own failure, which goes from thread to thread: it
        # has to be told to let go of its directories.
        with contextlib.closing(inventory.members()) as found:
            if delta is None:
                yield from _stream(stream, found)
                return
            yield from stream.add(tarformat.small_file(deltahead.MEMBER_NAME, delta.head))
            difference = against(delta.base, found, self._limits, digested=True)
            yield from _stream(stream, difference.members())
            self.tree = difference.tree


def _stream(stream: _Blocks, found: Iterable[Found]) -> Generator[bytearray, None, None]:
    for member, status, entry, _ in found:
        header = tarformat.encode(member)
        if not stream.put(header):
            yield from stream.add(header)
        if not member.size or entry is None:
            continue
        fd = os.open(entry.name, READ, dir_fd=entry.dir_fd)
        try:
            length = stream.read(fd, member.size)
            if length < 0:
                length = yield from stream.add_body(fd, member.size)
            _check_unchanged(length, status, os.fstat(fd))
        finally:
            os.close(fd)


class Sealing:
    """Hashes the blocks as they go by, and then makes the sidecar that says so."""

    def __init__(
        self, facts: SidecarFacts, planned: Plan, reading: Reading, *, key: bytes, limits: Limits
    ) -> None:
        """`reading` is where the blocks come from; at the end it knows what the tree is."""
        self._facts = facts
        self._planned = planned
        self._reading = reading
        self._key = key
        self._limits = limits
        self._digest = hashlib.sha256()
        self._length = 0

    def through(self, blocks: Iterable[Block]) -> Generator[Block, None, None]:
        """The blocks as they are."""
        for block in blocks:
            self._digest.update(block)
            self._length += len(block)
            yield block

    def end(self, compressed_crc32: int) -> bytes:
        """The last member and the end blocks."""
        planned = self._planned
        assert self._length == planned.tar_bytes
        archive = ArchiveFacts(
            sha256=self._digest.hexdigest(), entries=planned.entries, bytes=self._length
        )
        seal = sidecar.seal(
            self._facts,
            archive,
            omitted=planned.omitted,
            compressed_crc32=compressed_crc32,
            state=planned.state,
            delta=self._delta(),
            key=self._key,
            limits=self._limits,
        )
        return tarformat.last_member(sidecar.MEMBER_NAME, seal)

    def _delta(self) -> DeltaFacts | None:
        delta = self._planned.delta
        if delta is None:
            return None
        return DeltaFacts(base=delta.base.state, tree=self._reading.tree, removed=delta.gone)


class _Blocks:
    """Fills blocks of `CHUNK` zero bytes and gives each away when it is full."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._block = bytearray(CHUNK)
        self._view = memoryview(self._block)
        self._used = 0

    def put(self, header: bytes) -> bool:
        """Copies it in if it leaves room: nearly always, and a generator would cost more."""
        end = self._used + len(header)
        if end >= CHUNK:
            return False
        self._view[self._used : end] = header
        self._used = end
        return True

    def add(self, header: bytes) -> Generator[bytearray, None, None]:
        """Copies it in, over as many blocks as it takes."""
        start = 0
        while start < len(header):
            step = min(len(header) - start, CHUNK - self._used)
            self._view[self._used : self._used + step] = header[start : start + step]
            start += step
            self._used += step
            if self._used == CHUNK:
                yield self._full()

    def read(self, fd: int, size: int) -> int:
        """Reads a file that leaves room; -1 if it would not."""
        end = self._used + size
        if end >= CHUNK:
            return -1
        length = os.readv(fd, [self._view[self._used : end]])
        self._used = end + tarformat.padding(size)
        return length

    def add_body(self, fd: int, size: int) -> Generator[bytearray, None, int]:
        """Reads up to `size` bytes straight in, and pads; returns how many there were."""
        left = size
        while left:
            step = os.readv(fd, [self._view[self._used : self._used + left]])
            if not step:
                break
            left -= step
            self._used += step
            if self._used == CHUNK:
                yield self._full()
        self._used += tarformat.padding(self._used)
        if self._used == CHUNK:
            yield self._full()
        return size - left

    def rest(self) -> bytearray:
        """The last, shorter block."""
        self._view.release()
        del self._block[self._used :]
        return self._block

    def _full(self) -> bytearray:
        block = self._block
        self._view.release()
        self._renew()
        return block


def _await_next_tick(newest_ns: int) -> bool:
    """Waits until whatever is written from now on has a later ctime than all that was read.

    Else a file that is written again in the tick in which it was written last would look unchanged:
    see `workspace.fingerprint`. False if no wait helps: a ctime lies in the future.
    """
    wait_ns = newest_ns + RACY_NS - time.time_ns()
    if wait_ns > RACY_NS:
        return False
    time.sleep(max(0, wait_ns) / 1e9)
    return True


def _check_unchanged(length: int, before: os.stat_result, after: os.stat_result) -> None:
    """As many bytes as the header said, and from the very state that it described."""
    unchanged = (
        length == before.st_size == after.st_size
        and after.st_ctime_ns == before.st_ctime_ns
        and after.st_ino == before.st_ino
        and after.st_dev == before.st_dev
    )
    if not unchanged:
        raise changed()
