"""A sorted walk below a directory descriptor: no link followed, memory and descriptors bounded.

The tree may change under the walk. What vanishes is left out; what is swapped for a link is seen
as a link; a directory that was moved away is left where it was.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from heapq import nsmallest
from itertools import chain, islice
from typing import NamedTuple

from runner.workspace import descent
from runner.workspace.descent import Parts

#: Ancestors whose descriptors stay open. Deeper trees reopen them on the way up.
OPEN_ANCESTORS = 32


class Kind(StrEnum):
    """What an entry is. `UNLISTED` follows a directory that could not be listed: a mount point."""

    DIRECTORY = "directory"
    FILE = "file"
    SYMLINK = "symlink"
    OTHER = "other"
    UNLISTED = "unlisted"


_KINDS = {
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFREG: Kind.FILE,
    stat.S_IFLNK: Kind.SYMLINK,
}


class Entry(NamedTuple):
    """One entry. `dir_fd` is its directory, open only until the walk is asked for the next one."""

    parts: Parts
    kind: Kind
    stat: os.stat_result
    dir_fd: int

    @property
    def name(self) -> bytes:
        """The last component."""
        return self.parts[-1]

    @property
    def depth(self) -> int:
        """1 for what lies in the root."""
        return len(self.parts)

    def open(self) -> int:
        """A reading descriptor of this regular file; see `descent.open_regular`."""
        return descent.open_regular(self.dir_fd, self.parts[-1])

    def readlink(self) -> bytes:
        """The target of this symlink."""
        return os.readlink(self.parts[-1], dir_fd=self.dir_fd)


class TooManyEntriesError(Exception):
    """There are more entries than the walk was allowed; raised after those it was allowed."""


@dataclass(slots=True)
class _Frame:
    """One directory being walked: its names still to come, and what it takes to find it again."""

    parts: Parts
    fd: int | None
    identity: tuple[int, int]
    names: Iterator[bytes]

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class _Budget:
    """Entries that may still be listed. Counted when listed, so that it bounds memory as well."""

    def __init__(self, entries: int | None) -> None:
        self.left = entries
        self.exceeded = False

    def list(self, fd: int) -> list[bytes]:
        with os.scandir(fd) as scan:
            names = (entry.name.encode("utf-8", "surrogateescape") for entry in scan)
            if self.left is None:
                return sorted(names)
            kept = list(islice(names, self.left + 1))
            if len(kept) > self.left:
                # The smallest names, not the first: what is kept must not depend on the disk.
                self.exceeded = True
                kept = nsmallest(self.left, chain(kept, names))
        kept.sort()
        self.left -= len(kept)
        return kept


def walk(
    root_fd: int, *, max_depth: int | None = None, max_entries: int | None = None
) -> Iterator[Entry]:
    """Yields everything below `root_fd` but not the root, ordered by `Entry.parts`.

    A directory comes before what is in it. Directories at `max_depth` are yielded, not entered.
    """
    budget = _Budget(max_entries)
    top = descent.open_dir(root_fd)
    stack = [_Frame((), top, _identity(os.fstat(top)), iter(()))]
    try:
        stack[0].names = iter(budget.list(top))
        while stack:
            frame = stack[-1]
            name = next(frame.names, None)
            if name is None:
                _leave(root_fd, stack)
                continue
            assert frame.fd is not None
            try:
                status = os.stat(name, dir_fd=frame.fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            parts = (*frame.parts, name)
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), Kind.OTHER)
            yield Entry(parts, kind, status, frame.fd)
            if kind is Kind.DIRECTORY and (max_depth is None or len(parts) < max_depth):
                yield from _enter(stack, parts, status, budget)
    finally:
        for frame in stack:
            frame.close()
    if budget.exceeded:
        raise TooManyEntriesError


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _enter(
    stack: list[_Frame], parts: Parts, status: os.stat_result, budget: _Budget
) -> Iterator[Entry]:
    """Opens the directory that was just yielded and puts it on the stack."""
    above = stack[-1]
    assert above.fd is not None
    try:
        fd = descent.open_dir(above.fd, parts[-1:], one_file_system=True)
    except OSError as error:
        # Gone, or swapped for something that is no directory, since its stat.
        if error.errno not in (errno.ENOENT, *descent.NOT_A_DIRECTORY):
            yield Entry(parts, Kind.UNLISTED, status, above.fd)
        return
    frame = _Frame(parts, fd, _identity(os.fstat(fd)), iter(()))
    stack.append(frame)
    frame.names = iter(budget.list(fd))
    if len(stack) > OPEN_ANCESTORS:
        stack[-OPEN_ANCESTORS].close()


def _leave(root_fd: int, stack: list[_Frame]) -> None:
    """Takes the finished directory off the stack and makes sure the one above is open."""
    done = stack.pop()
    try:
        if stack and stack[-1].fd is None:
            stack[-1].fd = _reopen(root_fd, done, stack[-1])
            if stack[-1].fd is None:
                stack[-1].names = iter(())
    finally:
        done.close()


def _reopen(root_fd: int, below: _Frame, frame: _Frame) -> int | None:
    """The directory of `frame` again, or None if it is no longer to be found.

    `..` of a directory of the workspace is in the workspace, and the inode is compared: whoever
    moved directories in between, nothing else is opened.
    """
    for upwards in (True, False):
        try:
            if not upwards:
                fd = descent.open_dir(root_fd, frame.parts)
            elif below.fd is not None:
                fd = os.open(b"..", descent.DIRECTORY, dir_fd=below.fd)
            else:
                continue
        except OSError:
            # Moved or removed meanwhile; what cannot be found is left out of the walk.
            continue
        if _identity(os.fstat(fd)) == frame.identity:
            return fd
        os.close(fd)
    return None
