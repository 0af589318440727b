"""One tar member's header, to bytes and back. Pure: no file, no stream, no limits but the format's.

Source: POSIX.1-2001 (pax Interchange Format, ustar Interchange Format). What is written is a
narrow part of it, and only that part is read: see docs/checkpoint-format.md.
"""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

from runner.checkpoint.limits import BLOCK
from runner.errors import CheckpointCorrupt, CheckpointUnsafe

FILE, HARD_LINK, SYMLINK, DIRECTORY, PAX = b"0", b"1", b"2", b"5", b"x"
KINDS = frozenset((FILE, HARD_LINK, SYMLINK, DIRECTORY))

#: Permission bits and the sticky bit. The set-id bits (0o6000) never travel.
MODE_BITS = 0o1777
SYMLINK_MODE = 0o777

END = bytes(2 * BLOCK)

_NUMBER_MAX = 8**11 - 1  # eleven octal digits
_NO_OWNER = b"0000000\0" * 2
_MAGIC = b"ustar\00000"
_TAIL = _MAGIC + bytes(64) + b"0000000\0" * 2 + bytes(167)
#: Some writers leave the device numbers of a plain file empty. It means the same.
_TAILS = frozenset((_TAIL, _MAGIC + bytes(64 + 16 + 167)))
_BLANK_SUM = 8 * ord(" ")  # The checksum field counts as blanks.

_MTIME_RECORD = re.compile(rb"(-?)(0|[1-9][0-9]{0,18})(?:\.([0-9]{1,9}))?")
_SECONDS_MAX = 2**63 - 1
_KEYWORDS = frozenset((b"hdrcharset", b"linkpath", b"mtime", b"path", b"size"))


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
    plain = _fits(name) and not link and size <= _NUMBER_MAX
    if plain and timed and 1_000_000_000 <= seconds <= _NUMBER_MAX:
        # Nearly every member there is: a pax header whose only record has a fixed length.
        prefix = b"%b30 mtime=%d.%09d\n%b" % (_PAX_30, seconds, nanoseconds, _PAD_30)
    else:
        records = _pax_records(member, name, timed=timed)
        prefix = _pax_blocks(records) if records else b""
    return prefix + _ustar(
        name,
        mode=mode,
        size=size if size <= _NUMBER_MAX else 0,
        seconds=seconds if 0 <= seconds <= _NUMBER_MAX else 0,
        kind=kind,
        link=link,
    )


def last_member(name: bytes, body: bytes) -> bytes:
    """A plain file and the end of the archive behind it."""
    header = encode(Member(name, FILE, 0o644, len(body), 0, b""))
    return b"".join((header, body, bytes(padding(len(body))), END))


def encoded_size(member: Member) -> int:
    """Bytes that the member takes in the archive, padding and all."""
    if len(member.name) < 100 and member.name.isascii() and _fits(member.link):
        # A record with a time, the only one there can be, fits one block.
        headers = 3 * BLOCK if member.kind != HARD_LINK and member.mtime_ns else BLOCK
        if member.size <= _NUMBER_MAX:
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
    if member.size > _NUMBER_MAX:
        records.append(_record(b"size", b"%d" % member.size))
    return b"".join(records)


def checked_header(block: bytes) -> bytes:
    """The type flag of a header block whose checksum, magic and owner are right."""
    if not _is_octal(block[148:154]) or block[154:156] not in (b"\0 ", b" \0"):
        raise CheckpointCorrupt("a header has no checksum")
    if int(block[148:154], 8) != _sum(block[:148]) + _BLANK_SUM + _sum(block[156:257]) + _sum(
        block[257:]
    ):
        raise CheckpointCorrupt("a header's checksum is wrong")
    kind = block[156:157]
    if kind != PAX and kind not in KINDS:
        raise CheckpointUnsafe("a member has a type that no checkpoint holds", reason="type")
    if block[257:] not in _TAILS:
        raise CheckpointUnsafe("a header is not plain ustar without names", reason="header")
    if block[108:124] != _NO_OWNER:
        raise CheckpointUnsafe("a member has an owner", reason="owner")
    return kind


def body_size(block: bytes) -> int:
    """The size field."""
    return _number(block[124:136], "size")


def decode(block: bytes, records: dict[bytes, bytes]) -> Member:
    """The member of a `checked_header` block and the pax records before it."""
    kind = block[156:157]
    if kind not in KINDS:
        raise CheckpointUnsafe("a pax header stands before no member", reason="pax")
    name = records[b"path"] if b"path" in records else _text(block[:100])
    link = records[b"linkpath"] if b"linkpath" in records else _text(block[157:257])
    size = _pax_size(records[b"size"]) if b"size" in records else body_size(block)
    mode = _number(block[100:108], "mode")
    seconds = _number(block[136:148], "mtime")
    mtime_ns = _mtime(records[b"mtime"]) if b"mtime" in records else seconds * 1_000_000_000
    if mode & ~MODE_BITS:
        raise CheckpointUnsafe("a member has set-id or unknown mode bits", reason="set_id")
    if kind != FILE and size:
        raise CheckpointUnsafe("a member that has no body has a size", reason="body")
    if (kind in (FILE, DIRECTORY)) == bool(link):
        raise CheckpointUnsafe("a link has no target or a file has one", reason="link")
    if kind == DIRECTORY and name.endswith(b"/"):
        name = name[:-1]
    return Member(name, kind, mode, size, mtime_ns, link)


def parse_pax(data: bytes) -> dict[bytes, bytes]:
    """The records of one pax header: `length SP keyword = value LF`, nothing else, none twice."""
    records: dict[bytes, bytes] = {}
    start = 0
    while start < len(data):
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
        if keyword in records or not value or b"\0" in value:
            raise CheckpointUnsafe("a pax record is repeated, empty or has NUL", reason="pax")
        records[keyword] = value
        start = end
    if not records:
        raise CheckpointUnsafe("a pax header has no record", reason="pax")
    if records.get(b"hdrcharset", b"BINARY") != b"BINARY":
        raise CheckpointUnsafe("a pax header has another character set", reason="pax")
    return records


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


def _mtime(value: bytes) -> int:
    match = _MTIME_RECORD.fullmatch(value)
    if match is None or int(match[2]) > _SECONDS_MAX:
        raise CheckpointUnsafe("a modification time is not a decimal", reason="pax")
    nanoseconds = int(match[2]) * 1_000_000_000 + int((match[3] or b"").ljust(9, b"0"))
    return -nanoseconds if match[1] else nanoseconds


def _pax_size(value: bytes) -> int:
    if not value.isdigit() or len(value) > 19 or (value.startswith(b"0") and value != b"0"):
        raise CheckpointUnsafe("a size is not a decimal", reason="pax")
    return int(value)


def _pax_blocks(records: bytes) -> bytes:
    # A name for readers that know no pax and would unpack this as a file.
    name = b"session/PaxHeaders"
    header = _ustar(name, mode=0o644, size=len(records), seconds=0, kind=PAX, link=b"")
    return header + records + bytes(padding(len(records)))


def _ustar(name: bytes, *, mode: int, size: int, seconds: int, kind: bytes, link: bytes) -> bytes:
    """One header block. Names that are too long are cut: a pax record has all of them."""
    start = b"%b%07o\0%b%011o\0%011o\0" % (
        name[:100].ljust(100, b"\0"),
        mode,
        _NO_OWNER,
        size,
        seconds,
    )
    end = kind + link[:100].ljust(100, b"\0") + _TAIL
    # 148, 8 and 356 bytes. The end is summed in two: see `_sum`.
    total = _sum(start) + _BLANK_SUM + _sum(end[:101]) + _TAIL_SUM
    return b"%b%06o\0 %b" % (start, total, end)


def _sum(part: bytes) -> int:
    """The sum of at most 256 bytes.

    The low half of Adler-32 is one plus the sum of the bytes modulo 65521, and 256 bytes cannot
    reach that: the same number as `sum(part)` in a tenth of the time.
    """
    return (zlib.adler32(part) & 0xFFFF) - 1


def _text(field: bytes) -> bytes:
    """A field that NULs fill up to its end; bytes after a NUL would be a name that hides."""
    text = field.rstrip(b"\0")
    if b"\0" in text:
        raise CheckpointUnsafe("a header field has bytes after its end", reason="header")
    return text


def _is_octal(digits: bytes) -> bool:
    return digits.isdigit() and b"8" not in digits and b"9" not in digits


def _number(field: bytes, what: str) -> int:
    """Octal digits and one NUL. Base-256, signs and blanks are encodings we never write."""
    if field[-1] or not _is_octal(field[:-1]):
        raise CheckpointUnsafe(f"a {what} is not plain octal", reason="header")
    return int(field[:-1], 8)


_TAIL_SUM = _sum(_TAIL)
_PAX_30 = _pax_blocks(b"\0" * 30)[:BLOCK]
_PAD_30 = bytes(BLOCK - 30)
