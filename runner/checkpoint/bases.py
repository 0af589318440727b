"""The states that were handed out lately, kept so that the next checkpoint can be a delta.

One file each, in a directory that only root may enter, named by entity tag:

    a seal        HMAC-SHA-256 (hex) by this disk's key over incarnation, tag and state
    the state     64 hex digits: SHA-256 of the lines that follow
    the lines     of `treeindex`, raw deflate

Keeping one fails nothing: what cannot be kept is answered with a full archive next time.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self, cast

from isal import isal_zlib

from runner.checkpoint.treeindex import BaseUnusableError, Lines
from runner.workspace.descent import Parts
from runner.workspace.tree import Tree, write_all

#: The states that a client may still have and build on.
KEPT_MAX = 4
#: Of one index, compressed: about a million members.
INDEX_BYTES_MAX = 32 << 20

_LABEL = b"sandbox-runner checkpoint base v1"
_TAG = re.compile(r'"([0-9a-f]{40})"')
_HEAD_BYTES = 2 * 64
_RAW = -15  # Deflate without a header.
_READ_BYTES = 64 << 10
_INFLATED_BYTES = 256 << 10
#: The stub declares an instance where there is a class.
_DAMAGE = cast(type[Exception], isal_zlib.error)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Base:
    """A state that the client says it has, and that is known here."""

    etag: str
    state: str
    _directory: Tree
    _parts: Parts

    def lines(self) -> Lines:
        """Its members. Reading raises `BaseUnusableError`, at the end at the latest, if not all of
        them are true. Blocks."""
        return Lines(self._checked())

    def _checked(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        try:
            for block in self._inflated():
                digest.update(block)
                yield block
        except (OSError, EOFError, _DAMAGE):
            raise BaseUnusableError from None
        if digest.hexdigest() != self.state:
            raise BaseUnusableError

    def forget(self) -> None:
        """It cannot be used."""
        log.info("a checkpoint's base was forgotten")
        self._directory.remove(self._parts)

    def _inflated(self) -> Iterator[bytes]:
        inflate = isal_zlib.decompressobj(_RAW)
        fd = self._directory.open_file(self._parts)
        try:
            os.lseek(fd, _HEAD_BYTES, os.SEEK_SET)
            while chunk := os.read(fd, _READ_BYTES):
                while chunk:
                    yield inflate.decompress(chunk, _INFLATED_BYTES)
                    chunk = inflate.unconsumed_tail
            yield inflate.flush()
        finally:
            os.close(fd)


class Bases:
    """Those of one incarnation. All of it blocks."""

    def __init__(self, directory: Tree, staging: Tree, *, key: bytes, incarnation: str) -> None:
        self._directory = directory
        self._staging = staging
        self._key = key
        self._incarnation = incarnation.encode()

    def find(self, tags: Iterable[str]) -> Base | None:
        """The first of these entity tags that is known."""
        for tag in tags:
            match = _TAG.fullmatch(tag)
            base = self._open(tag, (match[1].encode("ascii"),)) if match else None
            if base is not None:
                return base
        return None

    def _open(self, tag: str, parts: Parts) -> Base | None:
        try:
            fd = self._directory.open_file(parts)
            try:
                head = os.read(fd, _HEAD_BYTES)
            finally:
                os.close(fd)
            if not hmac.compare_digest(head[:64], self._seal(tag, head[64:])):
                return None
            # The least recently used goes first.
            self._directory.set_mtime(parts, time.time_ns())
        except OSError:
            return None
        return Base(tag, head[64:].decode("ascii"), self._directory, parts)

    def keep(self, tag: str, state: str) -> Keeping:
        """To be given the state's lines as they are found."""
        head = self._seal(tag, state.encode("ascii")) + state.encode("ascii")
        return Keeping(self._staging, head, lambda name: self._admit(tag, name))

    def _admit(self, tag: str, staged: Parts) -> None:
        kept = sorted(
            (entry.stat.st_mtime_ns, entry.parts) for entry in self._directory.walk(max_depth=1)
        )
        for _, parts in kept[: max(0, len(kept) - KEPT_MAX + 1)]:
            self._directory.remove(parts)
        self._staging.move(staged, self._directory, (tag.strip('"').encode("ascii"),))

    def _seal(self, tag: str, state: bytes) -> bytes:
        sealed = b"\0".join((_LABEL, self._incarnation, tag.encode(), state))
        return hmac.new(self._key, sealed, hashlib.sha256).hexdigest().encode("ascii")


class Keeping:
    """One index being written. A context manager: what was not `done` is thrown away."""

    def __init__(self, staging: Tree, head: bytes, admit: Callable[[Parts], None]) -> None:
        self._staging = staging
        self._head = head
        self._admit = admit
        self._parts = (f"base-{secrets.token_hex(8)}".encode(),)
        self._fd = -1
        self._room = INDEX_BYTES_MAX
        self._deflate = isal_zlib.compressobj(1, isal_zlib.DEFLATED, _RAW)

    def __enter__(self) -> Self:
        try:
            self._fd = self._staging.create(self._parts)
            write_all(self._fd, self._head)
        except OSError:
            self._give_up()
        return self

    def add(self, lines: bytes) -> None:
        """The next lines."""
        if self._fd >= 0:
            self._write(self._deflate.compress(lines))

    def done(self) -> None:
        """All lines have come: keeps it."""
        if self._fd >= 0:
            self._write(self._deflate.flush())
        if self._fd >= 0:
            try:
                self._admit(self._parts)
            except OSError:
                self._give_up()

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._remove()

    def _write(self, data: bytes) -> None:
        self._room -= len(data)
        try:
            if self._room < 0:
                raise OSError
            write_all(self._fd, data)
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        log.warning("a checkpoint cannot be kept as a base")
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._remove()

    def _remove(self) -> None:
        try:
            self._staging.remove(self._parts)
        except OSError:
            log.exception("staging could not be cleared")
