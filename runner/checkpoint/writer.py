"""The tar stream of a workspace, cut into blocks of one size. Reads files, writes nowhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator

from runner.checkpoint import sidecar, tarformat
from runner.checkpoint.inventory import Inventory, Plan
from runner.checkpoint.limits import CHUNK, Limits
from runner.checkpoint.sidecar import ArchiveFacts, SidecarFacts
from runner.checkpoint.tarformat import Member
from runner.errors import Internal
from runner.workspace.descent import READ
from runner.workspace.tree import Entry, Tree


def tar_blocks(
    tree: Tree, facts: SidecarFacts, planned: Plan, *, key: bytes, limits: Limits
) -> Generator[bytearray, None, None]:
    """The whole archive, sidecar and end blocks and all.

    Every block but the last has `CHUNK` bytes. The sidecar, without which no reader takes the
    archive, is only made when the state that was streamed is the planned one.
    """
    stream = _Blocks()
    inventory = Inventory(tree, limits)
    try:
        for member, status, entry in inventory.members():
            yield from stream.add(tarformat.encode(member))
            if member.size and entry is not None:
                yield from _add_body(stream, entry, status)
            yield from stream.pad()
    except OSError:
        raise _changed() from None
    if inventory.plan() != planned:
        raise _changed()
    archive = ArchiveFacts(sha256=stream.digest(), entries=planned.entries, bytes=planned.tar_bytes)
    sealed = sidecar.seal(facts, archive, omitted=planned.omitted, key=key, limits=limits)
    member = Member(sidecar.MEMBER_NAME, tarformat.FILE, 0o644, len(sealed), 0, b"")
    yield from stream.add(tarformat.encode(member))
    yield from stream.add(sealed)
    yield from stream.pad()
    yield from stream.add(tarformat.END)
    yield from stream.finish()


class _Blocks:
    """Fills blocks of `CHUNK` zero bytes and gives each away when it is full."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._renew()

    def _renew(self) -> None:
        self._block = bytearray(CHUNK)
        self._view = memoryview(self._block)
        self._used = 0
        self._hashed = 0

    def add(self, data: bytes) -> Generator[bytearray, None, None]:
        """Copies `data` in."""
        start = 0
        while start < len(data):
            step = min(len(data) - start, CHUNK - self._used)
            self._view[self._used : self._used + step] = data[start : start + step]
            start += step
            self._used += step
            if self._used == CHUNK:
                yield self._full()

    def read(self, fd: int, length: int) -> Generator[bytearray, None, int]:
        """Reads up to `length` bytes straight in; returns how many there were."""
        left = length
        while left:
            step = os.readv(fd, [self._view[self._used : self._used + left]])
            if not step:
                break
            left -= step
            self._used += step
            if self._used == CHUNK:
                yield self._full()
        return length - left

    def pad(self) -> Generator[bytearray, None, None]:
        """Goes on to the next multiple of a tar block: the bytes are zero already."""
        self._used += tarformat.padding(self._used)
        if self._used == CHUNK:
            yield self._full()

    def digest(self) -> str:
        """SHA-256 of everything so far."""
        self._digest.update(self._view[self._hashed : self._used])
        self._hashed = self._used
        return self._digest.hexdigest()

    def finish(self) -> Generator[bytearray, None, None]:
        """The last, shorter block."""
        if self._used:
            self._view.release()
            del self._block[self._used :]
            yield self._block

    def _full(self) -> bytearray:
        self._digest.update(self._view[self._hashed :])
        block = self._block
        self._view.release()
        self._renew()
        return block


def _add_body(
    stream: _Blocks, entry: Entry, status: os.stat_result
) -> Generator[bytearray, None, None]:
    """The file's bytes, as many as its header said, and from the very state it described."""
    fd = os.open(entry.name, READ, dir_fd=entry.dir_fd)
    try:
        length = yield from stream.read(fd, status.st_size)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    unchanged = (
        length == status.st_size == after.st_size
        and after.st_ctime_ns == status.st_ctime_ns
        and after.st_ino == status.st_ino
        and after.st_dev == status.st_dev
    )
    if not unchanged:
        raise _changed()


def _changed() -> Internal:
    """A stream cannot take back what it has said: it is cut, and the whole save may be repeated."""
    return Internal("the workspace changed while it was saved", reason="unstable")
