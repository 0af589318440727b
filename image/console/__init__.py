"""The console page's files, read once at start. Plain HTML, CSS and ES modules: nothing is built.

`vendor/` is xterm.js as npm has it, with its licences; `vendor/PINNED` names versions and hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

PAGE = "index.html"
_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is served."""

    content: bytes
    media_type: str
    etag: str


def load() -> Mapping[str, Asset]:
    """By path relative to the page's directory. Blocks."""
    found: dict[str, Asset] = {}
    _collect(resources.files(__name__), "", found)
    return found


def _collect(directory: Traversable, prefix: str, found: dict[str, Asset]) -> None:
    for entry in directory.iterdir():
        if entry.is_dir():
            _collect(entry, f"{prefix}{entry.name}/", found)
            continue
        suffix = entry.name[entry.name.rfind(".") :]
        if suffix in _MEDIA_TYPES:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[prefix + entry.name] = Asset(content, _MEDIA_TYPES[suffix], etag)
