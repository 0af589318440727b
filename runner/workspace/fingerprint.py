"""Fingerprints: when a file counts as unchanged, so that its bytes need not be read again.

ctime is what decides: every change of content, mode, owner or name sets it from the kernel's clock,
and no call lets a program choose it (utimes sets atime and mtime only). size, inode and mode are
compared as well. mtime is carried for those who show it, never compared.

ctime has two blind spots, and each has its rule here:

1. *The same tick.* Before Linux 6.13 ctime moves only with the timer tick, 1 to 10 ms. A file that
   was hashed in the tick in which it was written can be written once more in that tick: other
   bytes, same fingerprint. (git calls such index entries racy.) So a hash is remembered only if
   ctime lay at least `RACY_NS` before the moment the reading *began*: any later write then falls
   into a later tick. A ctime in the future, after the clock was set back, is racy too.
2. *Shared mappings.* A write through MAP_SHARED sets ctime when the page is first touched, not at
   each store; on tmpfs a page that was read first need not set it at all. Such stores are only
   possible while the process lives. So whoever hashes while a jail of the session is alive uses a
   cache of its own, or none.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from runner.workspace.descent import Parts
from runner.workspace.stopping import NEVER, Stop

#: Twice the coarsest tick that Linux is built with (HZ=100).
RACY_NS = 20_000_000
_READ_BYTES = 1 << 20
_ZEROS = bytes(_READ_BYTES)
#: What stat counts blocks in, whatever the file system's are.
_STAT_BLOCK = 512


class ChangedWhileReadError(Exception):
    """The file changed while it was read, or is not what it was said to be."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What lstat says of one file. Equal fingerprints: unchanged, within the rules above."""

    mode: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Fingerprint:
        """From lstat or fstat."""
        return cls(
            status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fingerprint):
            return NotImplemented
        return (self.ctime_ns, self.size, self.ino, self.mode) == (
            other.ctime_ns,
            other.size,
            other.ino,
            other.mode,
        )

    def __hash__(self) -> int:
        return hash((self.ctime_ns, self.size, self.ino, self.mode))


@dataclass(frozen=True, slots=True)
class Hashed:
    """The SHA-256 (hex) of a file, the fingerprint it had, and when its reading began (ns)."""

    fingerprint: Fingerprint
    sha256: str
    began_ns: int

    @property
    def racy(self) -> bool:
        """Whether a later write could leave the same fingerprint behind."""
        return self.fingerprint.ctime_ns > self.began_ns - RACY_NS


def hash_file(fd: int, *, clock_ns: Callable[[], int] = time.time_ns, stop: Stop = NEVER) -> Hashed:
    """Reads an open regular file from its start, as far as it reached when the reading began.

    Raises `ChangedWhileReadError` if it changed meanwhile. A file that grows without end is not
    followed: no more is read than its size, and one byte. `stop` is looked at between chunks.
    """
    began_ns = clock_ns()
    status = os.fstat(fd)
    before = Fingerprint.of(status)
    has_holes = holes_of(status) > 0
    digest = hashlib.sha256()
    offset = 0
    while offset <= before.size:
        stop.check()
        if has_holes and _is_hole(fd, offset, before.size):
            digest.update(_ZEROS)
            offset += _READ_BYTES
            continue
        chunk = os.pread(fd, min(_READ_BYTES, before.size + 1 - offset), offset)
        if not chunk:
            break
        digest.update(chunk)
        offset += len(chunk)
    if offset != before.size or Fingerprint.of(os.fstat(fd)) != before:
        raise ChangedWhileReadError
    return Hashed(before, digest.hexdigest(), began_ns)


def holes_of(status: os.stat_result) -> int:
    """Bytes of a file that lie in no blocks, as far as stat tells."""
    return max(0, status.st_size - status.st_blocks * _STAT_BLOCK)


def _is_hole(fd: int, offset: int, size: int) -> bool:
    """Whether a whole chunk of zeros follows that has no blocks, and so need not be read.

    To read a hole fills the page cache with zeros; a program makes one of any size in no time.
    """
    if offset + _READ_BYTES > size:
        return False
    try:
        return os.lseek(fd, offset, os.SEEK_DATA) >= offset + _READ_BYTES
    except OSError as error:
        # ENXIO: no more data before the end. Anything else: the file system cannot tell.
        return error.errno == errno.ENXIO


@dataclass(slots=True)
class _Known:
    """What a file looked like when it was hashed. `asked` is the sweep it was last asked for in."""

    ctime_ns: int
    size: int
    ino: int
    mode: int
    sha256: str
    asked: int


class HashCache:
    """Path → fingerprint and hash. Bounded; may be used from several threads.

    When it is full nothing is added until `sweep` has dropped what was not asked for: with a sorted
    walk over more files than it holds, replacing the oldest would never find anything again.
    """

    def __init__(self, *, max_entries: int = 65_536) -> None:
        self._max_entries = max_entries
        self._entries: dict[Parts, _Known] = {}
        self._sweeps = 0
        self._lock = threading.Lock()

    def get(self, parts: Parts, status: os.stat_result) -> str | None:
        """The hash of the file at `parts` if it is unchanged.

        Called for every file of a workspace in every turn: no object is made here.
        """
        with self._lock:
            known = self._entries.get(parts)
            if (
                known is None
                or known.ctime_ns != status.st_ctime_ns
                or known.size != status.st_size
                or known.ino != status.st_ino
                or known.mode != status.st_mode
            ):
                return None
            known.asked = self._sweeps
            return known.sha256

    def put(self, parts: Parts, hashed: Hashed) -> None:
        """Remembers a hash, unless it was made too soon after the file's last change."""
        found = hashed.fingerprint
        with self._lock:
            if hashed.racy:
                self._entries.pop(parts, None)
            elif parts in self._entries or len(self._entries) < self._max_entries:
                self._entries[parts] = _Known(
                    found.ctime_ns, found.size, found.ino, found.mode, hashed.sha256, self._sweeps
                )

    def sweep(self) -> None:
        """Drops what was neither found nor added since the last sweep: files that are gone."""
        with self._lock:
            gone = [parts for parts, known in self._entries.items() if known.asked != self._sweeps]
            for parts in gone:
                del self._entries[parts]
            self._sweeps += 1

    def clear(self) -> None:
        """Forgets everything: the workspace was replaced."""
        with self._lock:
            self._entries.clear()

    @property
    def size(self) -> int:
        """How many files are remembered."""
        return len(self._entries)
