"""Collecting outputs: one sorted, bounded walk over the workspace.

The program's own processes may still be at work in the tree. Files are opened by descriptor in a
directory that the walk holds open, never through a link: nothing outside can be read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Mapping

from runner.workspace.descent import NotRegularError
from runner.workspace.fingerprint import (
    ChangedWhileReadError,
    Fingerprint,
    HashCache,
    Hashed,
    hash_file,
)
from runner.workspace.outputs import Caps, Output, Outputs, Reason, Skipped, Status
from runner.workspace.paths import NAME_BYTES_MAX, SafePath
from runner.workspace.priming import READ_ONLY_MODE, Primed
from runner.workspace.tree import Entry, Kind, TooManyEntriesError, Tree


def collect(
    workspace: Tree,
    primed: Mapping[str, Primed],
    surfaced: Mapping[str, str],
    *,
    cache: HashCache,
    caps: Caps | None = None,
    sent: Collection[str] = (),
) -> Outputs:
    """Walks the workspace. `primed` and `surfaced` (path → hash) are keyed by `str(path)`.

    `sent`: what the request that is now answered primed. At such a path the client knows best what
    it has: one that is as it was sent is unchanged, whatever was delivered from there before.
    `cache` is the session's only while no jail of it lives; see `fingerprint`.
    """
    collection = _Collection(primed, surfaced, cache, caps or Caps(), sent)
    collection.run(workspace)
    return collection.found


class _SkipError(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class _Collection:
    """One walk over the workspace."""

    def __init__(
        self,
        primed: Mapping[str, Primed],
        surfaced: Mapping[str, str],
        cache: HashCache,
        caps: Caps,
        sent: Collection[str],
    ) -> None:
        self.found = Outputs()
        self._primed = primed
        self._surfaced = surfaced
        self._cache = cache
        self._caps = caps
        self._sent = sent
        self._read_left = caps.read_bytes

    def run(self, workspace: Tree) -> None:
        # A directory is empty when the walk yields nothing below it, and not itself once more.
        maybe_empty: Entry | None = None
        try:
            for entry in workspace.walk(max_depth=self._caps.depth, max_entries=self._caps.entries):
                if maybe_empty is not None and maybe_empty.parts not in (
                    entry.parts,
                    entry.parts[:-1],
                ):
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
        if len(self.found.empty_dirs) < self._caps.empty_dirs:
            with contextlib.suppress(_SkipError):
                _name_of(entry)
                self.found.empty_dirs.append(SafePath(entry.parts))

    def _skip(self, entry: Entry, reason: Reason) -> None:
        self.found.skipped_total += 1
        if len(self.found.skipped) < self._caps.skipped:
            shown = b"/".join(entry.parts).decode("utf-8", "backslashreplace")
            self.found.skipped.append(Skipped(shown, reason))

    def _file(self, entry: Entry) -> None:
        try:
            name = _name_of(entry)
            before = self._primed.get(name)
            sha256 = self._hash(entry, primed=before is not None)
            if before is not None and before.read_only:
                # Its owner does not prove it: a program may swap two read-only inputs.
                if sha256 == before.sha256 and _sealed(entry.stat):
                    self.found.unchanged.append(SafePath(entry.parts))
                else:
                    self._skip(entry, Reason.READ_ONLY_INPUT)
            else:
                self._compare(entry, name, sha256, before)
        except _SkipError as skip:
            self._skip(entry, skip.reason)

    def _compare(self, entry: Entry, name: str, sha256: str, before: Primed | None) -> None:
        # What was delivered last is what the client has: an input that went back to its original
        # after an edit of it was delivered is an output again.
        delivered = self._surfaced.get(name)
        as_primed = before is not None and sha256 == before.sha256
        if as_primed and (delivered is None or name in self._sent):
            self.found.unchanged.append(SafePath(entry.parts))
        elif sha256 != delivered:
            if entry.stat.st_size > self._caps.file_bytes:
                raise _SkipError(Reason.TOO_LARGE)
            if len(self.found.files) >= self._caps.files:
                raise _SkipError(Reason.TOO_MANY)
            status = Status.NEW if before is None and delivered is None else Status.MODIFIED
            mode = stat.S_IMODE(entry.stat.st_mode)
            path = SafePath(entry.parts)
            self.found.files.append(Output(path, entry.stat.st_size, mode, sha256, status, before))

    def _hash(self, entry: Entry, *, primed: bool) -> str:
        """The hash, from the cache or by reading."""
        known = self._cache.get(entry.parts, entry.stat)
        if known is not None:
            return known
        size = entry.stat.st_size
        if size > self._caps.file_bytes and not primed:
            raise _SkipError(Reason.TOO_LARGE)
        if size > self._read_left:
            raise _SkipError(Reason.NOT_COMPARED)
        self._read_left -= size
        hashed = _read(entry)
        if hashed.fingerprint != Fingerprint.of(entry.stat):
            raise _SkipError(Reason.CHANGED_WHILE_READ)
        self._cache.put(entry.parts, hashed)
        return hashed.sha256


def _read(entry: Entry) -> Hashed:
    try:
        fd = entry.open()
        try:
            return hash_file(fd)
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise _SkipError(Reason.VANISHED) from None
    except NotRegularError:
        raise _SkipError(Reason.NOT_REGULAR) from None
    except ChangedWhileReadError:
        raise _SkipError(Reason.CHANGED_WHILE_READ) from None
    except OSError:
        # A lease (EAGAIN) or an input/output error.
        raise _SkipError(Reason.UNREADABLE) from None


def _name_of(entry: Entry) -> str:
    """Its name on the wire, if the client could name it to us again."""
    raw = b"/".join(entry.parts)
    if len(raw) > NAME_BYTES_MAX:
        raise _SkipError(Reason.NAME_TOO_LONG)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _SkipError(Reason.NAME_NOT_UTF8) from None


def _sealed(status: os.stat_result) -> bool:
    owner_and_mode = (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))
    return owner_and_mode == (0, 0, READ_ONLY_MODE)
