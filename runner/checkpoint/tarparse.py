"""One tar member's headers, from bytes: strictly, and quickly where they are as we write them.

What cannot be what a checkpoint holds is `CheckpointUnsafe`; what is not even tar, or sums up
wrongly, is `CheckpointCorrupt`. Nothing is guessed and nothing is skipped.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from runner.checkpoint.limits import BLOCK
from runner.checkpoint.tarformat import (
    BLANK_SUM,
    DIRECTORY,
    FILE,
    KINDS,
    MODE_BITS,
    NO_OWNER,
    PAX,
    TAILS,
    Member,
    byte_sum,
)
from runner.errors import CheckpointCorrupt, CheckpointUnsafe

_SECOND_NS = 1_000_000_000
_SECONDS_MAX = 2**63 - 1  # time_t
_KEYWORDS = frozenset((b"hdrcharset", b"linkpath", b"mtime", b"path", b"size"))

#: Octal digits and one NUL. Base-256, signs and blanks are encodings that we never write.
_NUMBERS = {
    "mode": (100, re.compile(rb"([0-7]{7})\x00")),
    "size": (124, re.compile(rb"([0-7]{11})\x00")),
    "mtime": (136, re.compile(rb"([0-7]{11})\x00")),
}
_CHECKSUM = re.compile(rb"([0-7]{6})(?:\x00 | \x00)")
#: Mode to type flag of a header as it should be: offset 100 to 157.
_FIELDS = re.compile(
    rb"([0-7]{7})\x00" + NO_OWNER + rb"([0-7]{11})\x00([0-7]{11})\x00([0-7]{6})(?:\x00 | \x00)(.)",
    re.DOTALL,
)
_TIME_ONLY = re.compile(rb"30 mtime=([1-9][0-9]{9})\.([0-9]{9})\n")
_MTIME = re.compile(rb"(-?)(0|[1-9][0-9]{0,18})(?:\.([0-9]{1,9}))?")
_SIZE = re.compile(rb"0|[1-9][0-9]{0,18}")


class Header(NamedTuple):
    """The numbers of one header block."""

    kind: bytes
    mode: int
    size: int
    seconds: int


class Records(NamedTuple):
    """What pax records said in a header's stead."""

    path: bytes | None = None
    link: bytes | None = None
    mtime_ns: int | None = None
    size: int | None = None


def parse_header(block: bytes) -> Header:
    """A header block whose checksum, type, magic, owner and numbers are right."""
    fields = _FIELDS.match(block, 100)
    if fields is None:
        raise _refusal(block)
    mode, size, seconds, checksum, kind = fields.groups()
    if int(checksum, 8) != _checksum(block):
        raise CheckpointCorrupt("a header's checksum is wrong")
    if kind not in KINDS and kind != PAX:
        raise CheckpointUnsafe("a member has a type that no checkpoint holds", reason="type")
    if block[257:] not in TAILS:
        raise CheckpointUnsafe("a header is not plain ustar without names", reason="header")
    return Header(kind, int(mode, 8), int(size, 8), int(seconds, 8))


def parse_pax(data: bytes) -> Records:
    """The records of one pax header: `length SP keyword = value LF`, nothing else, none twice."""
    time_only = _TIME_ONLY.fullmatch(data)
    if time_only is not None:
        return Records(mtime_ns=int(time_only[1]) * _SECOND_NS + int(time_only[2]))
    values: dict[bytes, bytes] = {}
    start = 0
    while start < len(data):
        start = _take_record(data, start, values)
    if not values:
        raise CheckpointUnsafe("a pax header has no record", reason="pax")
    if values.get(b"hdrcharset", b"BINARY") != b"BINARY":
        raise CheckpointUnsafe("a pax header has another character set", reason="pax")
    return Records(
        path=values.get(b"path"),
        link=values.get(b"linkpath"),
        mtime_ns=_mtime(values[b"mtime"]) if b"mtime" in values else None,
        size=_size(values[b"size"]) if b"size" in values else None,
    )


def member_of(block: bytes, header: Header, records: Records) -> Member:
    """The member that a header block and the pax records before it make together."""
    kind, mode, size, seconds = header
    if kind == PAX:
        raise CheckpointUnsafe("a pax header stands before no member", reason="pax")
    name = _text(block[:100]) if records.path is None else records.path
    link = _text(block[157:257]) if records.link is None else records.link
    size = size if records.size is None else records.size
    mtime_ns = seconds * _SECOND_NS if records.mtime_ns is None else records.mtime_ns
    if mode & ~MODE_BITS:
        raise CheckpointUnsafe("a member has set-id or unknown mode bits", reason="set_id")
    if kind != FILE and size:
        raise CheckpointUnsafe("a member that has no body has a size", reason="body")
    if (kind in (FILE, DIRECTORY)) == bool(link):
        raise CheckpointUnsafe("a link has no target or a file has one", reason="link")
    if kind == DIRECTORY and name.endswith(b"/"):
        name = name[:-1]
    return Member(name, kind, mode, size, mtime_ns, link)


def _checksum(block: bytes) -> int:
    return byte_sum(block[:148]) + BLANK_SUM + byte_sum(block[156:257]) + byte_sum(block[257:BLOCK])


def _refusal(block: bytes) -> CheckpointCorrupt | CheckpointUnsafe:
    """Why a header's fields are not as they should be: damage first, then who could want it so."""
    checksum = _CHECKSUM.match(block, 148)
    if checksum is None:
        return CheckpointCorrupt("a header has no checksum")
    if int(checksum[1], 8) != _checksum(block):
        return CheckpointCorrupt("a header's checksum is wrong")
    for what, (offset, pattern) in _NUMBERS.items():
        if pattern.match(block, offset) is None:
            return CheckpointUnsafe(f"a {what} is not plain octal", reason="header")
    return CheckpointUnsafe("a member has an owner", reason="owner")


def _take_record(data: bytes, start: int, values: dict[bytes, bytes]) -> int:
    """Adds the record at `start` to `values`; returns where the next one starts."""
    space = data.find(b" ", start, start + 8)
    digits = data[start:space] if space > 0 else b""
    if not digits.isdigit() or digits.startswith(b"0"):
        raise CheckpointCorrupt("a pax record has no length")
    end = start + int(digits)
    equals = data.find(b"=", space, end)
    if end > len(data) or equals < 0 or data[end - 1 : end] != b"\n":
        raise CheckpointCorrupt("a pax record does not end where it says")
    keyword, value = data[space + 1 : equals], data[equals + 1 : end - 1]
    if keyword not in _KEYWORDS:
        raise CheckpointUnsafe("a pax record is not one of ours", reason="pax")
    if keyword in values or not value or b"\0" in value:
        raise CheckpointUnsafe("a pax record is repeated, empty or has NUL", reason="pax")
    values[keyword] = value
    return end


def _mtime(value: bytes) -> int:
    match = _MTIME.fullmatch(value)
    if match is None or int(match[2]) > _SECONDS_MAX:
        raise CheckpointUnsafe("a modification time is not a decimal", reason="pax")
    nanoseconds = int(match[2]) * _SECOND_NS + int((match[3] or b"").ljust(9, b"0"))
    return -nanoseconds if match[1] else nanoseconds


def _size(value: bytes) -> int:
    if _SIZE.fullmatch(value) is None:
        raise CheckpointUnsafe("a size is not a decimal", reason="pax")
    return int(value)


def _text(field: bytes) -> bytes:
    """A field that NULs fill up to its end; bytes after a NUL would be a name that hides."""
    text = field.rstrip(b"\0")
    if b"\0" in text:
        raise CheckpointUnsafe("a header field has bytes after its end", reason="header")
    return text
