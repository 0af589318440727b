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
HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_HEADER_BYTES = len(HEADER)
_TRAILER_BYTES = 8
_RAW_DEFLATE = -15
_LEVEL = 1
_WORD = 0xFFFFFFFF
#: The stub declares an instance where there is a class.
_DAMAGE = cast(type[Exception], igzip_lib.IsalError)


def compress(blocks: Iterable[Block], *, max_bytes: int) -> Generator[bytes, None, None]:
    """The member. The same blocks, cut the same way, give the same bytes."""
    deflate = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW_DEFLATE)
    pending, waiting = [HEADER], len(HEADER)
    crc = size = written = 0
    for block in blocks:
        crc = isal_zlib.crc32(block, crc)
        size += len(block)
        pending.append(deflate.compress(block))
        waiting += len(pending[-1])
        if waiting >= CHUNK:
            written += waiting
            _refuse_above(max_bytes, written)
            yield b"".join(pending)
            pending, waiting = [], 0
    pending.append(deflate.flush())
    pending.append(crc.to_bytes(4, "little") + (size & _WORD).to_bytes(4, "little"))
    _refuse_above(max_bytes, written + sum(map(len, pending)))
    yield b"".join(pending)


def decompress(chunks: Iterable[Block], *, max_bytes: int) -> Generator[bytes, None, None]:
    """What one gzip member holds, in blocks of at most `CHUNK` bytes.

    The header's time and system are not looked at; optional header fields, a second member and
    bytes behind the member are refused. The last block comes out only after its CRC was checked.
    """
    source = _Counted(chunks, max_bytes)
    rest = _strict_header(source)
    inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE)
    crc = size = 0
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
        if not block:
            continue
        if held:
            yield held
        crc = isal_zlib.crc32(block, crc)
        size += len(block)
        held = block
    _strict_trailer(inflate.unused_data, source, crc, size)
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
    while len(start) < _HEADER_BYTES:
        chunk = source.next()
        if not chunk:
            raise CheckpointCorrupt("the archive is truncated")
        start += chunk
    if start[:3] != HEADER[:3]:
        raise CheckpointCorrupt("it is not gzip")
    if start[3]:
        raise CheckpointUnsafe("its gzip header has optional fields", reason="gzip")
    return start[_HEADER_BYTES:]


def _strict_trailer(start: bytes, source: _Counted, crc: int, size: int) -> None:
    """CRC, length modulo 2**32, and the end of all bytes."""
    while len(start) < _TRAILER_BYTES:
        chunk = source.next()
        if not chunk:
            raise CheckpointCorrupt("the archive is truncated")
        start += chunk
    if int.from_bytes(start[:4], "little") != crc:
        raise CheckpointCorrupt("the checksum of the archive is wrong")
    if int.from_bytes(start[4:8], "little") != size & _WORD:
        raise CheckpointCorrupt("the length of the archive is wrong")
    if len(start) > _TRAILER_BYTES or source.next():
        raise CheckpointUnsafe("there are bytes behind the archive", reason="trailing")


def _refuse_above(max_bytes: int, written: int) -> None:
    if written > max_bytes:
        raise CheckpointTooLarge("compressed, it is larger than the cap", reason="compressed")
