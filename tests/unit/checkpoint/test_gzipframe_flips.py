"""A checkpoint's gzip bytes have one form: no bit can be flipped, even one that means nothing."""

from __future__ import annotations

import gzip
import os
import random

import pytest

from runner.checkpoint import gzipframe, tarformat
from runner.checkpoint.limits import CHUNK
from runner.errors import CheckpointRefused

MAX_BYTES = 1 << 30
PLAIN = {
    "nothing": b"",
    "a little text": b"print(1)" * 3 + bytes(1000),
    "noise and text": os.urandom(20_000) + b"the same line again\n" * 4_000,
    "more than a block": os.urandom(CHUNK) + bytes(CHUNK) + os.urandom(99),
}
LAST = tarformat.last_member(b"runner-sidecar.json", os.urandom(40_000).hex().encode())


def compressed(plain: bytes) -> tuple[bytes, int]:
    told = []

    def end(crc: int) -> bytes:
        told.append(crc)
        return LAST

    blocks = [plain[start : start + CHUNK] for start in range(0, len(plain), CHUNK)]
    return b"".join(gzipframe.compress(blocks, end, max_bytes=MAX_BYTES)), told[0]


def is_taken(archive: bytes, before: int, *, cut: int = CHUNK) -> bool:
    total = gzipframe.CompressedSum()
    chunks = [archive[start : start + cut] for start in range(0, len(archive), cut)]
    try:
        for _ in gzipframe.decompress(chunks, max_bytes=MAX_BYTES, total=total):
            pass
    except CheckpointRefused:
        return False
    return total.ends_with(LAST, before)


@pytest.mark.parametrize("name", PLAIN)
def test_what_was_written_is_gzip_and_is_taken_however_it_is_cut(name: str) -> None:
    archive, before = compressed(PLAIN[name])
    assert gzip.decompress(archive) == PLAIN[name] + LAST
    assert archive.startswith(gzipframe.HEADER)
    for cut in (7, 8, 9, 1000, CHUNK, len(archive)):
        assert is_taken(archive, before, cut=cut), cut


@pytest.mark.parametrize("name", PLAIN)
def test_no_flip_is_taken(name: str) -> None:
    archive, before = compressed(PLAIN[name])
    # Where meaningless bits are: the header, the code tables at a block's start, the end.
    near = random.sample([*range(300), *range(len(archive) - 100, len(archive))], 120)
    far = random.sample(range(len(archive)), 60)
    for offset in sorted({*range(10), *near, *far}):
        for mask in (1 << random.randrange(8), 0xFF):
            flipped = bytearray(archive)
            flipped[offset] ^= mask
            assert not is_taken(bytes(flipped), before), (offset, mask)
