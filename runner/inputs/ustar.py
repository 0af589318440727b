"""The tar of a push: flat, regular files only, as the usual writers of control planes make it.

More tolerant than a checkpoint's reader in what means nothing here (owner, mode, time, how a
number is padded, zero blocks up to a full record) and as strict in what does. Pure.

Source: POSIX.1-2001, ustar and pax Interchange Format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from runner.checkpoint.limits import BLOCK
from runner.checkpoint.tarformat import padding
from runner.errors import BadRequest

_FILE_TYPES = (b"0", b"\0")
_PAX = b"x"
_PAX_BYTES_MAX = 64 << 10
_NAME = slice(0, 100)
_SIZE = slice(124, 136)
_CHECKSUM = slice(148, 156)
_TYPE = slice(156, 157)
_MAGIC = slice(257, 262)
_PREFIX = slice(345, 500)
#: What would give the next member another name, body or length than its header does.
_TELLING = (b"path", b"linkpath", b"size", b"hdrcharset", b"GNU.sparse")
#: Writers fill the archive up to a whole record; the largest in use is 20 blocks.
_END_BYTES_MAX = 64 << 10


class Member(NamedTuple):
    """The next member; `name` is raw."""

    name: bytes
    size: int


def refuse(detail: str) -> BadRequest:
    """The one answer to an archive that is none, or not one that was asked for."""
    return BadRequest(detail, reason="archive")


class FlatReader:
    """Iterate `members`; take each one's `body` before the next."""

    def __init__(self, blocks: Iterable[bytes | bytearray]) -> None:
        """`blocks` are the tar's bytes, cut anywhere."""
        self._blocks = iter(blocks)
        self._buffer = b""
        self._body_left = 0

    def members(self) -> Iterator[Member]:
        """Every member to the end blocks. Raises `BadRequest` for anything that is not right."""
        while True:
            header = self._take(BLOCK)
            if not any(header):
                self._end()
                return
            kind = _checked(header)
            size = _octal(header[_SIZE])
            if kind == _PAX:
                if size > _PAX_BYTES_MAX:
                    raise refuse("a pax header is too long")
                _check_pax(self._take(size + padding(size))[:size])
                continue
            if kind not in _FILE_TYPES:
                raise refuse("a member is not a regular file")
            self._body_left = size
            yield Member(header[_NAME].rstrip(b"\0"), size)
            for _ in self.body():
                pass
            self._take(padding(size))

    def body(self) -> Iterator[bytes]:
        """The bytes of the member that `members` gave last, in pieces."""
        while self._body_left:
            if not self._buffer:
                self._refill()
            piece = self._buffer[: self._body_left]
            self._buffer = self._buffer[len(piece) :]
            self._body_left -= len(piece)
            yield piece

    def _take(self, length: int) -> bytes:
        while len(self._buffer) < length:
            self._refill()
        taken, self._buffer = self._buffer[:length], self._buffer[length:]
        return taken

    def _refill(self) -> None:
        for block in self._blocks:
            self._buffer += block
            return
        raise refuse("the archive is truncated")

    def _end(self) -> None:
        """A second zero block, and nothing but zeros after it."""
        if any(self._take(BLOCK)):
            raise refuse("there is something behind the end block")
        left = _END_BYTES_MAX
        rest = self._buffer
        while True:
            left -= len(rest)
            if left < 0 or any(rest):
                raise refuse("there is something behind the end blocks")
            following = next(self._blocks, None)
            if following is None:
                return
            rest = bytes(following)


def _checked(header: bytes) -> bytes:
    """The type of a header whose checksum is right and whose name is all in its name field."""
    start, stop = _CHECKSUM.start, _CHECKSUM.stop
    if _octal(header[_CHECKSUM]) != sum(header[:start]) + 8 * ord(" ") + sum(header[stop:]):
        raise refuse("a header's checksum is wrong")
    if header[_MAGIC] != b"ustar" or any(header[_PREFIX]):
        raise refuse("a header is not plain ustar")
    return header[_TYPE]


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if any(digit not in b"01234567" for digit in digits):
        raise refuse("a number is not octal")
    return int(digits or b"0", 8)


def _check_pax(records: bytes) -> None:
    """`length SP keyword = value LF`, and none of those that would change what a header says."""
    start = 0
    while start < len(records):
        digits, _, _ = records[start : start + 8].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = records[start : start + length]
        keyword, equals, _ = record[len(digits) + 1 :].partition(b"=")
        if not equals or len(record) < length or not record.endswith(b"\n"):
            raise refuse("a pax record is damaged")
        if keyword.startswith(_TELLING):
            raise refuse("a pax record gives a member another name or length")
        start += length
