"""One tar member's headers as bytes. Pure: no file, no stream, no limits but the format's.

Source: POSIX.1-2001 (pax Interchange Format, ustar Interchange Format). What is written is a
narrow part of it, and `tarparse` reads little more: see docs/checkpoint-format.md.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from runner.checkpoint.limits import BLOCK

FILE, HARD_LINK, SYMLINK, DIRECTORY, PAX = b"0", b"1", b"2", b"5", b"x"
KINDS = frozenset((FILE, HARD_LINK, SYMLINK, DIRECTORY))

#: Permission bits and the sticky bit. The set-id bits (0o6000) never travel.
MODE_BITS = 0o1777
SYMLINK_MODE = 0o777

END = bytes(2 * BLOCK)

NUMBER_MAX = 8**11 - 1  # eleven octal digits
NO_OWNER = b"0000000\0" * 2
_MAGIC = b"ustar\00000"
_TAIL = _MAGIC + bytes(64) + b"0000000\0" * 2 + bytes(167)
#: Some writers leave the device numbers of a plain file empty. It means the same.
TAILS = frozenset((_TAIL, _MAGIC + bytes(64 + 16 + 167)))
BLANK_SUM = 8 * ord(" ")  # The checksum field counts as blanks.


class Member(NamedTuple):
    """One member as its headers say. `name` has no trailing slash; `link` is raw data.

    A hard link carries no mode and no time of its own: both are those of the file it names.
    """

    name: bytes
    kind: bytes
    mode: int
    size: int
    mtime_ns: int
    link: bytes


def padding(size: int) -> int:
    """Zero bytes that follow a body of `size` bytes."""
    return -size % BLOCK


def encode(member: Member) -> bytes:
    """The member's header blocks: the pax one, if it needs one, and the ustar one."""
    raw, kind, mode, size, mtime_ns, link = member
    name = raw + b"/" if kind == DIRECTORY else raw
    seconds, nanoseconds = divmod(mtime_ns, 1_000_000_000)
    timed = kind != HARD_LINK and mtime_ns != 0
    plain = _fits(name) and not link and size <= NUMBER_MAX
    if plain and timed and 1_000_000_000 <= seconds <= NUMBER_MAX:
        # Nearly every member there is: a pax header whose only record has a fixed length.
        start = _start(name, mode, size, seconds)
        middle, middle_sum = _WITHOUT_LINK[kind]
        return b"%b30 mtime=%d.%09d\n%b%b%06o\0 %b" % (
            PAX_30,
            seconds,
            nanoseconds,
            _PAD_30,
            start,
            byte_sum(start) + middle_sum,
            middle,
        )
    records = _pax_records(member, name, timed=timed)
    prefix = _pax_blocks(records) if records else b""
    return prefix + _ustar(
        name,
        mode=mode,
        size=size if size <= NUMBER_MAX else 0,
        seconds=seconds if 0 <= seconds <= NUMBER_MAX else 0,
        kind=kind,
        link=link,
    )


def small_file(name: bytes, body: bytes) -> bytes:
    """A plain file that was never on a disk."""
    header = encode(Member(name, FILE, 0o644, len(body), 0, b""))
    return b"".join((header, body, bytes(padding(len(body)))))


def last_member(name: bytes, body: bytes) -> bytes:
    """A plain file and the end of the archive behind it."""
    return small_file(name, body) + END


def encoded_size(member: Member) -> int:
    """Bytes that the member takes in the archive, padding and all."""
    if len(member.name) < 100 and member.name.isascii() and _fits(member.link):
        # A record with a time, the only one there can be, fits one block.
        headers = 3 * BLOCK if member.kind != HARD_LINK and member.mtime_ns else BLOCK
        if member.size <= NUMBER_MAX:
            return headers + member.size + padding(member.size)
    return len(encode(member)) + member.size + padding(member.size)


def _pax_records(member: Member, name: bytes, *, timed: bool) -> bytes:
    """The records that a ustar header cannot hold, in the order of their keywords."""
    records = []
    if not (_is_utf8(name) and _is_utf8(member.link)):
        # The names below are raw bytes, not UTF-8 (POSIX.1-2008; libarchive, GNU tar copes).
        records.append(_record(b"hdrcharset", b"BINARY"))
    if not _fits(member.link):
        records.append(_record(b"linkpath", member.link))
    if timed:
        records.append(_record(b"mtime", _decimal(member.mtime_ns)))
    if not _fits(name):
        records.append(_record(b"path", name))
    if member.size > NUMBER_MAX:
        records.append(_record(b"size", b"%d" % member.size))
    return b"".join(records)


def _fits(name: bytes) -> bool:
    """Whether the ustar field holds it: POSIX leaves bytes above 127 there undefined."""
    return len(name) <= 100 and name.isascii()


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _record(keyword: bytes, value: bytes) -> bytes:
    """The length counts its own digits."""
    rest = len(keyword) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, keyword, value)


def _decimal(mtime_ns: int) -> bytes:
    """Seconds with nine decimals: a sign and a magnitude, as pax writes times before 1970."""
    seconds, nanoseconds = divmod(abs(mtime_ns), 1_000_000_000)
    return b"%b%d.%09d" % (b"-" if mtime_ns < 0 else b"", seconds, nanoseconds)


def _pax_blocks(records: bytes) -> bytes:
    # A name for readers that know no pax and would unpack this as a file.
    name = b"session/PaxHeaders"
    header = _ustar(name, mode=0o644, size=len(records), seconds=0, kind=PAX, link=b"")
    return header + records + bytes(padding(len(records)))


def _ustar(name: bytes, *, mode: int, size: int, seconds: int, kind: bytes, link: bytes) -> bytes:
    """One header block. Names that are too long are cut: a pax record has all of them."""
    start = _start(name, mode, size, seconds)
    middle, middle_sum = _middle(kind, link)
    return b"%b%06o\0 %b" % (start, byte_sum(start) + middle_sum, middle)


def _start(name: bytes, mode: int, size: int, seconds: int) -> bytes:
    """The 148 bytes before the checksum."""
    return b"%b%07o\0%b%011o\0%011o\0" % (
        name[:100].ljust(100, b"\0"),
        mode,
        NO_OWNER,
        size,
        seconds,
    )


def _middle(kind: bytes, link: bytes) -> tuple[bytes, int]:
    """The 356 bytes behind the checksum, and what they and its field add to it."""
    middle = kind + link[:100].ljust(100, b"\0")
    # 101 and 255 bytes, summed apart: see `byte_sum`.
    return middle + _TAIL, BLANK_SUM + byte_sum(middle) + _TAIL_SUM


def byte_sum(part: bytes) -> int:
    """The sum of at most 256 bytes.

    The low half of Adler-32 is one plus the sum of the bytes modulo 65521, and 256 bytes cannot
    reach that: the same number as `sum(part)` in a tenth of the time.
    """
    return (zlib.adler32(part) & 0xFFFF) - 1


_TAIL_SUM = byte_sum(_TAIL)
PAX_30 = _pax_blocks(b"\0" * 30)[:BLOCK]
_PAD_30 = bytes(BLOCK - 30)
_WITHOUT_LINK = {kind: _middle(kind, b"") for kind in KINDS}
