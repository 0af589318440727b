"""The tar stream of a workspace, cut into blocks of one size. Reads files, writes nowhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterable

from runner.checkpoint import sidecar, tarformat
from runner.checkpoint.handover import Block
from runner.checkpoint.inventory import Inventory, Plan
from runner.checkpoint.limits import CHUNK, Limits
from runner.checkpoint.sidecar import ArchiveFacts, SidecarFacts
from runner.errors import Internal
from runner.workspace.descent import READ
from runner.workspace.tree import Tree


def member_blocks(tree: Tree, planned: Plan, *, limits: Limits) -> Generator[bytearray, None, None]:
    """Every member but the sidecar. Every block but the last has `CHUNK` bytes.

    Ends well only when the state that was streamed is the planned one.
    """
    stream = _Blocks()
    inventory = Inventory(tree, limits)
    try:
        for member, status, entry in inventory.members():
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
    except OSError:
        raise _changed() from None
    if inventory.state() != planned.state:
        raise _changed()
    yield stream.rest()


class Sealing:
    """Hashes the blocks as they go by, and then makes the sidecar that says so."""

    def __init__(self, facts: SidecarFacts, planned: Plan, *, key: bytes, limits: Limits) -> None:
        self._facts = facts
        self._planned = planned
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
            key=self._key,
            limits=self._limits,
        )
        return tarformat.last_member(sidecar.MEMBER_NAME, seal)


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


def _check_unchanged(length: int, before: os.stat_result, after: os.stat_result) -> None:
    """As many bytes as the header said, and from the very state that it described."""
    unchanged = (
        length == before.st_size == after.st_size
        and after.st_ctime_ns == before.st_ctime_ns
        and after.st_ino == before.st_ino
        and after.st_dev == before.st_dev
    )
    if not unchanged:
        raise _changed()


def _changed() -> Internal:
    """A stream cannot take back what it has said: it is cut, and the whole save may be repeated."""
    return Internal("the workspace changed while it was saved", reason="unstable")
