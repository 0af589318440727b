"""Archives that are nearly right: a mutator that knows what a tar block is, and its seeds.

Random bytes never get behind the first checksum. So a mutated header mostly gets a new one.
"""

from __future__ import annotations

import random

from tests.fuzz.targets import BASE_STATE, TARGETS
from tests.pushing import Item, members
from tests.security.hostile_corpus import UNSAFE_MEMBERS
from tests.unit.checkpoint import forge
from tests.unit.checkpoint.forge import (
    BLOCK,
    ROOT,
    directory,
    file,
    hard_link,
    pax,
    record,
    symlink,
)

MAX_BYTES = 64 << 10

NAMES = [
    b"session", b"session/", b"session/a", b"session/a/", b"session/a/b", b"session/d/f",
    b"session/d", b"session/d/", b"session/d/e/", b"session/link", b"session/link/x", b"session/z",
    b"session/../x", b"/etc/x", b"session//a", b"session/.", b"..", b"", b"session/\xff",
    b"runner-sidecar.json", b"runner-delta", b"session/runner-delta", b"../canary/file",
    b"session/d/../../x", b"session/" + b"n" * 92,
]  # fmt: skip
NUMBERS = [b"0000000\0", b"0000644\0", b"0001777\0", b"0006755\0", b"7777777\0", b"       \0"]
SIZES = [
    b"00000000000\0",
    b"00000000001\0",
    b"00000001000\0",
    b"77777777777\0",
    b"\x80" + bytes(11),
]
KINDS = [bytes([each]) for each in b"01234567xgLKS\0"]
RECORDS = [
    record(b"path", b"session/a"),
    record(b"path", b"session/../x"),
    record(b"path", b"../canary/file"),
    record(b"linkpath", b"session/d/f"),
    record(b"linkpath", b"/etc/passwd"),
    record(b"size", b"1"),
    record(b"size", b"99999999999"),
    record(b"mtime", b"1.5"),
    record(b"mtime", b"-99999999999999999999"),
    record(b"hdrcharset", b"BINARY"),
    record(b"GNU.sparse.major", b"1"),
    b"9 path=\0\n",
]
GONE = [b"a", b"d", b"d/f", b"link", b"d/e", b"..", b"", b"/", b"nowhere", b"link/x", b"../canary"]
GOOD = [
    directory(b"session/a/"),
    file(b"session/a/b", b"body", mtime=1_700_000_000),
    file(b"session/c", b"x" * 600),
    hard_link(b"session/c2", b"session/c"),
    hard_link(b"session/g", b"session/d/f"),
    directory(b"session/d/"),
    file(b"session/d/f", b"new"),
    symlink(b"session/d/e", b"../../canary"),
    file(b"session/link", b"over"),
    directory(b"session/link/"),
    pax(record(b"mtime", b"1.5")) + file(b"session/p", b"1"),
    pax(record(b"path", b"session/" + b"q" * 120)) + file(b"session/q", b"2"),
    symlink(b"session/s", b"/etc"),
]
_SIDECAR = file(b"runner-sidecar.json", b"{}") + forge.END


def head(*gone: bytes) -> bytes:
    """A delta's first member."""
    body = BASE_STATE.encode() + b"\n" + b"".join(name + b"\0" for name in gone)
    return file(b"runner-delta", body)


def seeds() -> list[bytes]:
    """Each begins with the byte that says whom it is for."""
    full, delta, push, packed = (bytes([each]) for each in range(len(TARGETS)))
    pair = members([Item("s", "one", b"first"), Item("s", "two", b"x" * 700, read_only=True)])
    flat = b"".join(file(name.encode(), body) for name, body in pair) + forge.END
    good = ROOT + b"".join(GOOD) + _SIDECAR
    return [
        full + ROOT + _SIDECAR,
        full + good,
        *(full + ROOT + each + _SIDECAR for each in UNSAFE_MEMBERS.values()),
        delta + head() + ROOT + _SIDECAR,
        delta + head(b"a", b"d/f", b"link") + ROOT + directory(b"session/d/") + _SIDECAR,
        delta + head(b"a", b"d/f") + good,
        delta + head(b"d") + ROOT + symlink(b"session/d", b"../canary") + _SIDECAR,
        push + flat,
        packed + forge.sealed(ROOT, *GOOD[:3]),
    ]


def mutated(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """Another archive. `others` are what pieces are taken from."""
    target, tar = data[:1] or b"\0", bytearray(data[1:])
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        chance.choice(_ACTS)(tar, chance, others)
    if chance.random() < 0.9:
        _fix_checksums(tar)
    if chance.random() < 0.02:
        target = bytes([chance.randrange(len(TARGETS))])
    return target + bytes(tar[:MAX_BYTES])


def _fix_checksums(tar: bytearray) -> None:
    for at in range(0, len(tar) - BLOCK + 1, BLOCK):
        if tar[at + 257 : at + 262] == b"ustar":
            total = sum(tar[at : at + 148]) + 8 * 32 + sum(tar[at + 156 : at + BLOCK])
            tar[at + 148 : at + 156] = b"%06o\0 " % total


def _block(tar: bytearray, chance: random.Random) -> int:
    """Mostly one with a header."""
    blocks = range(0, len(tar), BLOCK)
    headers = [at for at in blocks if tar[at + 257 : at + 262] == b"ustar"]
    return chance.choice(headers or [0])


def _set(tar: bytearray, at: int, value: bytes) -> None:
    tar[at : at + len(value)] = value


def _rename(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    _set(tar, _block(tar, chance), chance.choice(NAMES).ljust(100, b"\0")[:100])


def _relink(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    _set(tar, _block(tar, chance) + 157, chance.choice(NAMES).ljust(100, b"\0")[:100])


def _retype(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    _set(tar, _block(tar, chance) + 156, chance.choice(KINDS))


def _renumber(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    offset, values = chance.choice(((100, NUMBERS), (124, SIZES), (136, SIZES), (108, NUMBERS)))
    _set(tar, _block(tar, chance) + offset, chance.choice(values))


def _flip(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    if tar:
        tar[chance.randrange(len(tar))] ^= 1 << chance.randrange(8)


def _insert(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    made = chance.choice((GOOD, list(UNSAFE_MEMBERS.values())))
    at = _block(tar, chance)
    tar[at:at] = chance.choice(made)


def _describe(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    records = b"".join(chance.sample(RECORDS, chance.randrange(1, 4)))
    at = _block(tar, chance)
    tar[at:at] = pax(records)


def _behead(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    tar[0:0] = head(*sorted(chance.sample(GONE, chance.randrange(4))))


def _drop(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    at = _block(tar, chance)
    del tar[at : at + BLOCK * chance.randrange(1, 4)]


def _repeat(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    at, to = _block(tar, chance), _block(tar, chance)
    tar[to:to] = tar[at : at + BLOCK * chance.randrange(1, 4)]


def _splice(tar: bytearray, chance: random.Random, others: list[bytes]) -> None:
    other = chance.choice(others)[1:]
    at, of = _block(tar, chance), _block(bytearray(other), chance)
    tar[at:] = other[of:]


def _cut(tar: bytearray, chance: random.Random, _: list[bytes]) -> None:
    if tar:
        del tar[chance.randrange(len(tar)) :]


_ACTS = (
    _rename, _rename, _relink, _retype, _renumber, _flip, _insert, _insert, _describe, _behead,
    _drop, _repeat, _splice, _cut,
)  # fmt: skip
