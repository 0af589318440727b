"""One gzip member around a stream (RFC 1952), written with a fixed header and read strictly.

Generators over blocks of bytes: whoever drives them decides on which thread.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import cast

from isal import igzip_lib, isal_zlib

from runner.checkpoint.handover import Block
from runner.checkpoint.limits import CHUNK
from runner.errors import CheckpointCorrupt, CheckpointTooLarge, CheckpointUnsafe

#: Deflate, no flags, no time, no extra flags, unknown system: nothing of the machine is in it.
#: It is what isal writes; a test holds it to that.
HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LEVEL = 1
_GZIP = 31  # The window size of 15 bits, plus 16 for a gzip header and trailer.
#: What gzip tools write as their own time, flags and system: an archive that was decompressed and
#: compressed again stays an archive. 2020 to 2038, and zero.
_TIMES = range(1577836800, 1 << 31)
_EXTRA_FLAGS = b"\x00\x02\x04"
_SYSTEMS = b"\x03\xff"
#: The stub declares an instance where there is a class.
_DAMAGE = cast(type[Exception], igzip_lib.IsalError)


def compress(blocks: Iterable[Block], *, max_bytes: int) -> Generator[bytes, None, None]:
    """The member. The same blocks, cut the same way, give the same bytes."""
    deflate = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
    written = 0
    for block in blocks:
        chunk = deflate.compress(block)
        if chunk:
            written += len(chunk)
            _refuse_above(max_bytes, written)
            yield chunk
    chunk = deflate.flush()
    _refuse_above(max_bytes, written + len(chunk))
    yield chunk


def decompress(chunks: Iterable[Block], *, max_bytes: int) -> Generator[bytes, None, None]:
    """What one gzip member holds, in blocks of at most `CHUNK` bytes.

    Optional header fields, a second member and bytes behind the member are refused. The last block
    comes out only after the CRC and the length of all were checked.
    """
    source = _Counted(chunks, max_bytes)
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
    """The compressed chunks, counted against their cap."""

    def __init__(self, chunks: Iterable[Block], max_bytes: int) -> None:
        self._chunks = iter(chunks)
        self._left = max_bytes

    def next(self) -> Block:
        """The next chunk that is not empty; b"" at the end."""
        for chunk in self._chunks:
            self._left -= len(chunk)
            if self._left < 0:
                raise CheckpointTooLarge("it is larger than the cap", reason="compressed")
            if chunk:
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
