"""Outputs: what is in the workspace that the client does not have yet.

The bytes decide: size and mtime can be forged. A file is not an output if its hash is that of what
was primed at its path, or of what the client received from that path last. Everything else is one,
or is named in `skipped` with the reason.

The program's own processes may still be at work in the tree. Files are opened by descriptor in a
directory that the walk holds open, never through a link: nothing outside can be read.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from runner.workspace.descent import NotRegularError
from runner.workspace.fingerprint import (
    ChangedWhileReadError,
    Fingerprint,
    HashCache,
    hash_file,
)
from runner.workspace.paths import DEPTH_MAX, NAME_BYTES_MAX, SafePath
from runner.workspace.priming import READ_ONLY_MODE, Primed
from runner.workspace.tree import Entry, Kind, TooManyEntriesError, Tree


class Status(StrEnum):
    """`MODIFIED`: the client had, or gave, another file at this path."""

    NEW = "new"
    MODIFIED = "modified"


class Reason(StrEnum):
    """Why a file is not returned. These go over the wire."""

    TOO_MANY = "too_many"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    #: More bytes than may be read in one collection: it was not compared.
    NOT_COMPARED = "not_compared"
    NOT_REGULAR = "not_regular"
    #: What stands at a read-only input's path is not that input.
    READ_ONLY_INPUT = "read_only_input"
    UNREADABLE = "unreadable"
    NAME_NOT_UTF8 = "name_not_utf8"
    NAME_TOO_LONG = "name_too_long"
    VANISHED = "vanished"
    CHANGED_WHILE_READ = "changed_while_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The bounds of one collection. Sizes in bytes."""

    files: int = 256
    file_bytes: int = 512 << 20
    #: Read and hashed altogether; what is known from the cache is free.
    read_bytes: int = 4 << 30
    depth: int = DEPTH_MAX
    #: Entries of the tree that are looked at.
    entries: int = 250_000
    #: Skipped files that are named; the rest are only counted.
    skipped: int = 256
    empty_dirs: int = 256


@dataclass(frozen=True, slots=True)
class Output:
    """A file that the client does not have. `modified_from` is the input that it was made from."""

    path: SafePath
    size: int
    mode: int
    sha256: str
    status: Status
    modified_from: Primed | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not returned. `path` is for people: bytes that are not UTF-8 are escaped."""

    path: str
    reason: Reason


@dataclass(slots=True)
class Outputs:
    """What a collection found, each list in the order of the walk.

    `unchanged`: primed files that are as they were put. `skipped_total` counts those that are not
    named as well. `complete`: the whole tree was looked at.
    """

    files: list[Output] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_total: int = 0
    empty_dirs: list[SafePath] = field(default_factory=list)
    unchanged: list[SafePath] = field(default_factory=list)
    complete: bool = True


def collect(
    workspace: Tree,
    primed: Mapping[str, Primed],
    surfaced: Mapping[str, str],
    *,
    cache: HashCache,
    caps: Caps | None = None,
) -> Outputs:
    """Walks the workspace. `primed` and `surfaced` (path → hash) are keyed by `str(path)`.

    `cache` is the session's only while no jail of it lives; see `fingerprint`.
    """
    collection = _Collection(primed, surfaced, cache, caps or Caps())
    collection.run(workspace)
    return collection.found


class _Collection:
    """One walk over the workspace."""

    def __init__(
        self,
        primed: Mapping[str, Primed],
        surfaced: Mapping[str, str],
        cache: HashCache,
        caps: Caps,
    ) -> None:
        self.found = Outputs()
        self._primed = primed
        self._surfaced = surfaced
        self._cache = cache
        self._caps = caps
        self._read_left = caps.read_bytes

    def run(self, workspace: Tree) -> None:
        # A directory is empty when the walk yields nothing below it.
        maybe_empty: Entry | None = None
        try:
            for entry in workspace.walk(max_depth=self._caps.depth, max_entries=self._caps.entries):
                if maybe_empty is not None and entry.parts[:-1] != maybe_empty.parts:
                    self._empty(maybe_empty)
                maybe_empty = self._visit(entry)
        except TooManyEntriesError:
            self.found.complete = False
            maybe_empty = None
        else:
            self._cache.sweep()
        if maybe_empty is not None:
            self._empty(maybe_empty)

    def _visit(self, entry: Entry) -> Entry | None:
        """Judges one entry; returns it if it is a directory that may turn out empty."""
        if entry.kind is Kind.DIRECTORY:
            if entry.depth < self._caps.depth:
                return entry
            self._skip(entry, Reason.TOO_DEEP)
        elif entry.kind is Kind.FILE:
            self._file(entry)
        elif entry.kind is Kind.UNLISTED:
            self._skip(entry, Reason.UNREADABLE)
        else:
            self._skip(entry, Reason.NOT_REGULAR)
        return None

    def _empty(self, entry: Entry) -> None:
        path = SafePath.of_parts(entry.parts)
        if _name_fault(path) is None and len(self.found.empty_dirs) < self._caps.empty_dirs:
            self.found.empty_dirs.append(path)

    def _skip(self, entry: Entry, reason: Reason) -> None:
        self.found.skipped_total += 1
        if len(self.found.skipped) < self._caps.skipped:
            shown = b"/".join(entry.parts).decode("utf-8", "backslashreplace")
            self.found.skipped.append(Skipped(shown, reason))

    def _file(self, entry: Entry) -> None:
        path = SafePath.of_parts(entry.parts)
        fault = _name_fault(path)
        if fault is not None:
            self._skip(entry, fault)
            return
        name = str(path)
        before = self._primed.get(name)
        if before is not None and before.read_only:
            if _sealed(entry.stat) and entry.stat.st_size == before.size:
                # Only root writes such a file: it is the input that was put there.
                self.found.unchanged.append(path)
            else:
                self._skip(entry, Reason.READ_ONLY_INPUT)
            return
        sha256 = self._hash(entry, before)
        if isinstance(sha256, Reason):
            self._skip(entry, sha256)
            return
        delivered = self._surfaced.get(name)
        if delivered is None and before is not None and sha256 == before.sha256:
            self.found.unchanged.append(path)
        elif sha256 != delivered:
            self._output(entry, path, sha256, before, known=delivered is not None)

    def _output(
        self, entry: Entry, path: SafePath, sha256: str, before: Primed | None, *, known: bool
    ) -> None:
        if entry.stat.st_size > self._caps.file_bytes:
            self._skip(entry, Reason.TOO_LARGE)
        elif len(self.found.files) >= self._caps.files:
            self._skip(entry, Reason.TOO_MANY)
        else:
            status = Status.NEW if before is None and not known else Status.MODIFIED
            mode = stat.S_IMODE(entry.stat.st_mode)
            self.found.files.append(Output(path, entry.stat.st_size, mode, sha256, status, before))

    def _hash(self, entry: Entry, before: Primed | None) -> str | Reason:
        """The hash, from the cache or by reading; or why there is none."""
        size = entry.stat.st_size
        fingerprint = Fingerprint.of(entry.stat)
        known = self._cache.get(entry.parts, fingerprint)
        if known is not None:
            return known
        if size > self._caps.file_bytes and (before is None or before.size != size):
            return Reason.TOO_LARGE
        if size > self._read_left:
            return Reason.NOT_COMPARED
        self._read_left -= size
        try:
            fd = entry.open()
        except FileNotFoundError:
            return Reason.VANISHED
        except NotRegularError:
            return Reason.NOT_REGULAR
        except OSError:
            # A lease (EAGAIN), an input/output error: told to the client as what it is.
            return Reason.UNREADABLE
        try:
            hashed = hash_file(fd)
        except ChangedWhileReadError:
            return Reason.CHANGED_WHILE_READ
        except OSError:
            return Reason.UNREADABLE
        finally:
            os.close(fd)
        if hashed.fingerprint != fingerprint:
            return Reason.CHANGED_WHILE_READ
        self._cache.put(entry.parts, hashed)
        return hashed.sha256


def _name_fault(path: SafePath) -> Reason | None:
    """Whether the client could not name this file to us again."""
    raw = bytes(path)
    if len(raw) > NAME_BYTES_MAX:
        return Reason.NAME_TOO_LONG
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return Reason.NAME_NOT_UTF8
    return None


def _sealed(status: os.stat_result) -> bool:
    owner_and_mode = (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))
    return owner_and_mode == (0, 0, READ_ONLY_MODE)


def read_bounded(workspace: Tree, path: SafePath, *, size: int, sha256: str) -> bytes:
    """The bytes of a collected output, `size` of them, if they are still those that were hashed.

    Raises `ChangedWhileReadError` for anything else: changed, gone, or not a regular file now.
    """
    try:
        fd = workspace.open_file(path.parts)
    except OSError as error:
        raise ChangedWhileReadError from error
    try:
        chunks = []
        wanted = size + 1
        while wanted and (chunk := os.read(fd, min(wanted, 1 << 20))):
            chunks.append(chunk)
            wanted -= len(chunk)
    finally:
        os.close(fd)
    content = b"".join(chunks)
    if len(content) != size or hashlib.sha256(content).hexdigest() != sha256:
        raise ChangedWhileReadError
    return content
