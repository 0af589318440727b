"""One gzip member around a stream (RFC 1952), written with a fixed header and read strictly.

Generators over blocks of bytes: whoever drives them decides on which thread.

Deflate (RFC 1951) has bits that mean nothing: padding before a stored block, codes that no symbol
uses. Flipped, they pass every check of what comes out. So the sum of the compressed bytes is told
to whoever makes the end of the stream, and the end is written without such bits: it has only one
form.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import cast

from isal import igzip_lib, isal_zlib

from runner.checkpoint.handover import Block
from runner.checkpoint.limits import CHUNK
from runner.errors import CheckpointCorrupt, CheckpointTooLarge, CheckpointUnsafe

#: Deflate, no flags, no time, no extra flags, unknown system: nothing of the machine is in it.
HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LEVEL = 1
#: isal's deflate with all of a block's output in one buffer. With less room it never stores what
#: does not compress (RFC 1951 section 3.2.4), which takes twice as long to write and 17 times as
#: long to read. `igzip_threaded` uses it so, with a tenth of room to spare.
_DEFLATED_MAX = CHUNK + CHUNK // 10
_TRAILER_BYTES = 8
_STORED_MAX = 0xFFFF
_WORD = 0xFFFFFFFF
#: What gzip tools write as their own time, flags and system: an archive that was decompressed and
#: compressed again stays an archive. 2020 to 2038, and zero.
_TIMES = range(1577836800, 1 << 31)
_EXTRA_FLAGS = b"\x00\x02\x04"
_SYSTEMS = b"\x03\xff"
#: The stub declares an instance where there is a class.
_DAMAGE = cast(type[Exception], igzip_lib.IsalError)


def compress(
    blocks: Iterable[Block], end: Callable[[int], bytes], *, max_bytes: int
) -> Generator[bytes, None, None]:
    """The member: the blocks, and then what `end` makes of the CRC-32 of all that was written.

    Blocks of at most `CHUNK` bytes. Each is deflated by itself, up to a byte, which the next one
    goes on from. The same blocks, cut the same way, give the same bytes.
    """
    deflate = isal_zlib._ParallelCompress(buffersize=_DEFLATED_MAX, level=_LEVEL)
    plain_crc = plain_bytes = 0
    pending, waiting, written, written_crc = [HEADER], len(HEADER), 0, 0
    for block in blocks:
        deflated, crc = deflate.compress_and_crc(block, b"")
        plain_crc = isal_zlib.crc32_combine(plain_crc, crc, len(block))
        plain_bytes += len(block)
        pending.append(deflated)
        waiting += len(deflated)
        if waiting >= CHUNK:
            chunk = b"".join(pending)
            pending, waiting = [], 0
            written += len(chunk)
            written_crc = isal_zlib.crc32(chunk, written_crc)
            _refuse_above(max_bytes, written)
            yield chunk
    chunk = b"".join(pending)
    last = end(isal_zlib.crc32(chunk, written_crc))
    plain_crc = isal_zlib.crc32(last, plain_crc)
    plain_bytes += len(last)
    trailer = plain_crc.to_bytes(4, "little") + (plain_bytes & _WORD).to_bytes(4, "little")
    chunk += _stored(last) + trailer
    _refuse_above(max_bytes, written + len(chunk))
    yield chunk


def _stored(plain: bytes) -> bytes:
    """The last blocks of a deflate stream, not compressed (RFC 1951 section 3.2.4)."""
    blocks = []
    for start in range(0, len(plain), _STORED_MAX):
        piece = plain[start : start + _STORED_MAX]
        is_last = start + _STORED_MAX >= len(plain)
        length = len(piece)
        blocks += [
            b"\x01" if is_last else b"\x00",
            length.to_bytes(2, "little"),
            (length ^ _STORED_MAX).to_bytes(2, "little"),
            piece,
        ]
    return b"".join(blocks)


class CompressedSum:
    """The CRC-32 of the compressed bytes that `decompress` takes, but for the gzip trailer."""

    def __init__(self) -> None:
        self._crc = 0
        self._held = b""

    def add(self, chunk: Block) -> None:
        """The next bytes."""
        if len(chunk) < _TRAILER_BYTES:
            chunk = self._held + chunk
            self._held = b""
        self._crc = isal_zlib.crc32(self._held, self._crc)
        cut = max(len(chunk) - _TRAILER_BYTES, 0)
        self._crc = isal_zlib.crc32(memoryview(chunk)[:cut], self._crc)
        self._held = bytes(chunk[cut:])

    def ends_with(self, last: bytes, before: int) -> bool:
        """Whether `compress` wrote it, when `end` was told `before` and made `last`."""
        return isal_zlib.crc32(_stored(last), before) == self._crc


def decompress(
    chunks: Iterable[Block], *, max_bytes: int, total: CompressedSum | None = None
) -> Generator[bytes, None, None]:
    """What one gzip member holds, in blocks of at most `CHUNK` bytes.

    `total` has summed up all chunks when the last block comes out. Optional header fields, a
    second member and bytes behind the member are refused. The last block comes out only after the
    CRC and the length of all were checked.
    """
    source = _Counted(chunks, max_bytes, total)
    rest = _strict_header(source)
    inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP_NO_HDR_VER)
    held = b""
    while not inflate.eof:
        if inflate.needs_input and not rest:
            rest = source.next()
            if not rest:
                raise CheckpointCorrupt("the archive is truncated")
        try:
            block = inflate.decompress(rest, CHUNK)
        except _DAMAGE:
            raise CheckpointCorrupt("the compressed data is damaged") from None
        rest = b""
        if block:
            if held:
                yield held
            held = block
    if inflate.unused_data or source.next():
        raise CheckpointUnsafe("there are bytes behind the archive", reason="trailing")
    if held:
        yield held


class _Counted:
    """The compressed chunks, counted against their cap and summed."""

    def __init__(
        self, chunks: Iterable[Block], max_bytes: int, total: CompressedSum | None
    ) -> None:
        self._chunks = iter(chunks)
        self._left = max_bytes
        self._total = total

    def next(self) -> Block:
        """The next chunk that is not empty; b"" at the end."""
        for chunk in self._chunks:
            self._left -= len(chunk)
            if self._left < 0:
                raise CheckpointTooLarge("it is larger than the cap", reason="compressed")
            if chunk:
                if self._total is not None:
                    self._total.add(chunk)
                return chunk
        return b""


def _strict_header(source: _Counted) -> Block:
    """Reads the header; what came behind it is given back."""
    start = b""
    while len(start) < len(HEADER):
        chunk = source.next()
        if not chunk:
            raise CheckpointCorrupt("the archive is truncated")
        start += chunk
    time = int.from_bytes(start[4:8], "little")
    if start[:3] != HEADER[:3] or start[8] not in _EXTRA_FLAGS or start[9] not in _SYSTEMS:
        raise CheckpointCorrupt("it does not start as gzip")
    if time and time not in _TIMES:
        raise CheckpointCorrupt("its gzip header has an impossible time")
    if start[3]:
        raise CheckpointUnsafe("its gzip header has optional fields", reason="gzip")
    return start[len(HEADER) :]


def _refuse_above(max_bytes: int, written: int) -> None:
    if written > max_bytes:
        raise CheckpointTooLarge("compressed, it is larger than the cap", reason="compressed")
