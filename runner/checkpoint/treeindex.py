"""A line for each member of a tree: the state's name, and what an unchanged one looks like. Pure.

The state's name is the SHA-256 of these lines, so a stored index proves itself.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

from runner.checkpoint import tarformat
from runner.checkpoint.tarformat import Member

_LINES_AT_ONCE = 256
#: Mode, size, inode, ctime. A line is name NUL link NUL and these: quick to make and to take apart.
_NUMBERS = struct.Struct("<IQQq")


class BaseUnusableError(Exception):
    """A stored index is not what was stored."""


class Indexed(NamedTuple):
    """One member as it was when the index was made. `link` as in `Member`."""

    name: bytes
    link: bytes
    mode: int
    size: int
    ino: int
    ctime_ns: int

    @property
    def line(self) -> bytes:
        """The line that it was."""
        numbers = _NUMBERS.pack(self.mode, self.size, self.ino, self.ctime_ns)
        return b"%b\0%b\0%b" % (self.name, self.link, numbers)


def order_key(name: bytes) -> bytes:
    """Bytes that compare as names do component by component: no name holds NUL."""
    return name.replace(b"/", b"\0")


def line(member: Member, status: os.stat_result) -> bytes:
    """The member's line. Whatever has the same line is the very same thing still: a program can set
    its files' mtime but not their ctime."""
    return b"%b\0%b\0%b" % (
        member.name,
        member.link,
        _NUMBERS.pack(status.st_mode, status.st_size, status.st_ino, status.st_ctime_ns),
    )


class Lines:
    """The lines again, one after another, from blocks that are cut anywhere."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._data = b""
        self._at = 0

    def take(self, text: bytes) -> bool:
        """Whether the next line is this very one; then it is taken. Takes none apart."""
        end = self._at + len(text)
        while end > len(self._data):
            if not self._refill():
                return False
            end = self._at + len(text)
        if not self._data.startswith(text, self._at):
            return False
        self._at = end
        return True

    def next(self) -> Indexed | None:
        """Takes the next line apart; None at the end. Raises `BaseUnusableError`."""
        while True:
            data, start = self._data, self._at
            name_end = data.find(b"\0", start)
            link_end = data.find(b"\0", name_end + 1) if name_end >= 0 else -1
            end = link_end + 1 + _NUMBERS.size
            if link_end >= 0 and end <= len(data):
                self._at = end
                name, link = data[start:name_end], data[name_end + 1 : link_end]
                return Indexed(name, link, *_NUMBERS.unpack_from(data, link_end + 1))
            if not self._refill():
                if self._at < len(self._data):
                    raise BaseUnusableError
                return None

    def _refill(self) -> bool:
        for block in self._blocks:
            self._data = self._data[self._at :] + block
            self._at = 0
            return True
        return False


class LineDigest:
    """SHA-256 over lines; hashing several at once costs half as much."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._lines: list[bytes] = []

    def add(self, text: bytes) -> bytes | None:
        """The next line. What has been hashed since the last time, now and then."""
        self._lines.append(text)
        return self.flush() if len(self._lines) >= _LINES_AT_ONCE else None

    def flush(self) -> bytes:
        """Hashes what has come since; the bytes that were hashed."""
        block = b"".join(self._lines)
        self._lines.clear()
        self._digest.update(block)
        return block

    def hexdigest(self) -> str:
        """Of all that was added."""
        self.flush()
        return self._digest.hexdigest()


class TreeDigest:
    """Of a whole tree as a full archive would hold it, but for its times and its bodies."""

    def __init__(self) -> None:
        self._lines = LineDigest()

    def add(self, member: Member) -> None:
        """The next member, in the archive's order."""
        mode = 0 if member.kind == tarformat.SYMLINK else member.mode
        self._lines.add(
            b"%b\0%b\0%b %o %d\n" % (member.name, member.link, member.kind, mode, member.size)
        )

    def hexdigest(self) -> str:
        """Of all members that were added."""
        return self._lines.hexdigest()
