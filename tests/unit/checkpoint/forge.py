"""Archives that nobody but an attacker makes: any header, any order, and a valid seal on it.

Written apart from `runner.checkpoint`, from the format's page: what the reader refuses here it
refuses for what it is, not because a seal is missing.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
from typing import Any

from tests.unit.checkpoint.kit import KEY, SESSION

BLOCK = 512
END = bytes(2 * BLOCK)


def header(
    name: bytes,
    kind: bytes = b"0",
    *,
    size: int | bytes = 0,
    mode: int | bytes = 0o644,
    uid: int = 0,
    gid: int = 0,
    mtime: int | bytes = 0,
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
    uname: bytes = b"",
    gname: bytes = b"",
    devices: bytes = b"0000000\x00" * 2,
    prefix: bytes = b"",
    tail: bytes = bytes(12),
    checksum: int | None = None,
) -> bytes:
    """One ustar header block with any field."""

    def number(value: int | bytes, width: int) -> bytes:
        return value if isinstance(value, bytes) else b"%0*o\x00" % (width - 1, value)

    front = b"".join(
        (
            name.ljust(100, b"\x00"),
            number(mode, 8),
            number(uid, 8),
            number(gid, 8),
            number(size, 12),
            number(mtime, 12),
        )
    )
    back = b"".join(
        (
            kind,
            link.ljust(100, b"\x00"),
            magic,
            uname.ljust(32, b"\x00"),
            gname.ljust(32, b"\x00"),
            devices,
            prefix.ljust(155, b"\x00"),
            tail,
        )
    )
    total = sum(front) + sum(back) + 8 * 32 if checksum is None else checksum
    block = front + b"%06o\x00 " % total + back
    assert len(block) == BLOCK
    return block


def padded(body: bytes, filler: bytes = b"\x00") -> bytes:
    """A body and what fills its last block."""
    return body + filler * (-len(body) % BLOCK)


def file(name: bytes, body: bytes = b"", **fields: Any) -> bytes:
    """A regular file."""
    return header(name, size=len(body), **fields) + padded(body)


def directory(name: bytes, **fields: Any) -> bytes:
    """A directory."""
    return header(name, b"5", **{"mode": 0o755} | fields)


def symlink(name: bytes, target: bytes, **fields: Any) -> bytes:
    """A symlink."""
    return header(name, b"2", link=target, mode=0o777, **fields)


def hard_link(name: bytes, target: bytes, **fields: Any) -> bytes:
    """A hard link."""
    return header(name, b"1", link=target, **{"mode": 0} | fields)


def pax(records: bytes, **fields: Any) -> bytes:
    """A pax header with these bytes as its records."""
    return header(b"PaxHeaders/x", b"x", size=len(records), **fields) + padded(records)


def record(keyword: bytes, value: bytes) -> bytes:
    """One pax record."""
    length = len(keyword) + len(value) + 3
    while len(b"%d" % length) + len(keyword) + len(value) + 3 != length:
        length = len(b"%d" % length) + len(keyword) + len(value) + 3
    return b"%d %b=%b\n" % (length, keyword, value)


ROOT = directory(b"session/")


def sidecar_json(tar: bytes, entries: int, *, key: bytes = KEY, **changes: Any) -> bytes:
    """A sidecar that is valid for these tar bytes but for `changes`; None takes a field out."""
    said = {
        "marker": "runner.sidecar.v1",
        "session": SESSION,
        "incarnation": "inc_1",
        "created_at": "2026-01-02T03:04:05Z",
        "archive": {
            "sha256": hashlib.sha256(tar).hexdigest(),
            "entries": entries,
            "bytes": len(tar),
        },
        "primed": {},
        "surfaced": {},
    } | changes
    said = {name: value for name, value in said.items() if value is not None}
    if "mac" not in changes:
        canonical = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
        said["mac"] = hmac.new(key, canonical, hashlib.sha256).hexdigest()
    return json.dumps(said).encode()


def sealed(*members: bytes, entries: int | None = None, **changes: Any) -> bytes:
    """A whole archive of these members, each one string of headers and body, and a valid seal."""
    tar = b"".join(members)
    raw = sidecar_json(tar, len(members) if entries is None else entries, **changes)
    return gzipped(tar + file(b"runner-sidecar.json", raw) + END)


def gzipped(tar: bytes) -> bytes:
    """One gzip member, as any tool writes it."""
    return gzip.compress(tar, 1)
