"""Pushes as a control plane makes them: tar.gz of `<key>` and `<key>.json` pairs."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    session: str
    id: str
    body: bytes
    read_only: bool = False
    given_key: str | None = None

    @property
    def key(self) -> str:
        named = f"{self.session}\0{self.id}".encode()
        return self.given_key or hashlib.sha256(named).hexdigest()

    @property
    def json(self) -> bytes:
        return json.dumps({"readOnly": self.read_only}, separators=(",", ":")).encode()


def expanded(items: Iterable[Item]) -> int:
    return sum(len(item.body) + len(item.json) for item in items)


def members(items: Iterable[Item]) -> list[tuple[str, bytes]]:
    return [
        pair for item in items for pair in ((item.key, item.body), (f"{item.key}.json", item.json))
    ]


def archive(pairs: Iterable[tuple[str, bytes]]) -> bytes:
    """By Python's tarfile: its owner names, its padding to a record."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as tar:
        for name, body in pairs:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            info.mtime = 1_700_000_000.25
            info.uid, info.gid, info.uname = 1000, 1000, "node"
            tar.addfile(info, io.BytesIO(body))
    return out.getvalue()


def batch(*items: Item) -> bytes:
    return archive(members(items))
