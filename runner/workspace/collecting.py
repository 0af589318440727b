"""Collecting outputs: one sorted, bounded walk over the workspace.

The program's own processes may still be at work in the tree. Files are opened by descriptor in a
directory that the walk holds open, never through a link: nothing outside can be read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Mapping
from types import MappingProxyType

from runner.workspace.descent import NotRegularError
from runner.workspace.fingerprint import (
    ChangedWhileReadError,
    Fingerprint,
    HashCache,
    Hashed,
    hash_file,
    holes_of,
)
from runner.workspace.outputs import Caps, Output, Outputs, Reason, Skipped, Status
from runner.workspace.paths import NAME_BYTES_MAX, SafePath
from runner.workspace.priming import READ_ONLY_MODE, Primed
from runner.workspace.stopping import NEVER, Stop
from runner.workspace.tree import Entry, Kind, TooManyEntriesError, Tree

_NONE: Mapping[str, int] = MappingProxyType({})


def collect(
    workspace: Tree,
    primed: Mapping[str, Primed],
    surfaced: Mapping[str, str],
    *,
    cache: HashCache,
    caps: Caps | None = None,
    sent: Collection[str] = (),
    sizes: Mapping[str, int] = _NONE,
    stop: Stop = NEVER,
) -> Outputs:
    """Walks the workspace. `primed` and `surfaced` (path → hash) are keyed by `str(path)`.

    `sent`: what the request that is now answered primed. At such a path the client knows best what
    it has: one that is as it was sent is unchanged, whatever was delivered from there before.
    `sizes`: of primed files, as far as they are known: one of another size need not be read to know
    that it was changed. Raises `Stopped` soon after `stop` is asked.
    `cache` is the session's only while no jail of it lives; see `fingerprint`.
    """
    collection = _Collection(primed, surfaced, cache, caps or Caps(), sent, sizes, stop)
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
        sizes: Mapping[str, int],
        stop: Stop,
    ) -> None:
        self.found = Outputs()
        self._primed = primed
        self._surfaced = surfaced
        self._cache = cache
        self._caps = caps
        self._sent = sent
        self._sizes = sizes
        self._stop = stop
        self._read_left = caps.read_bytes
        self._holes_left = caps.hole_bytes
        self._inline_left = caps.inline_bytes

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
        self._stop.check()
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
            size = entry.stat.st_size if reason is Reason.INLINE_BUDGET else None
            self.found.skipped.append(Skipped(shown, reason, size))

    def _file(self, entry: Entry) -> None:
        try:
            name = _name_of(entry)
            before = self._primed.get(name)
            if before is not None and before.read_only:
                self._compare_sealed(entry, name, before)
            else:
                self._compare(entry, name, before)
        except _SkipError as skip:
            self._skip(entry, skip.reason)

    def _compare_sealed(self, entry: Entry, name: str, before: Primed) -> None:
        # Its owner does not prove it: a program may swap two read-only inputs.
        if (
            self._is_resized(entry, name)
            or not _sealed(entry.stat)
            or self._hash(entry, primed=True) != before.sha256
        ):
            raise _SkipError(Reason.READ_ONLY_INPUT)
        self.found.unchanged.append(SafePath(entry.parts))

    def _compare(self, entry: Entry, name: str, before: Primed | None) -> None:
        # What was delivered last is what the client has: an input that went back to its original
        # after an edit of it was delivered is an output again.
        delivered = self._surfaced.get(name)
        if delivered is None and (before is None or self._is_resized(entry, name)):
            # The client cannot have it, whatever it holds.
            self._require_fit(entry)
        sha256 = self._hash(entry, primed=before is not None)
        as_primed = before is not None and sha256 == before.sha256
        if as_primed and (delivered is None or name in self._sent):
            self.found.unchanged.append(SafePath(entry.parts))
        elif sha256 != delivered:
            self._require_fit(entry)
            status = Status.NEW if before is None and delivered is None else Status.MODIFIED
            mode = stat.S_IMODE(entry.stat.st_mode)
            path = SafePath(entry.parts)
            self.found.files.append(Output(path, entry.stat.st_size, mode, sha256, status, before))
            if self._inline_left is not None:
                self._inline_left -= entry.stat.st_size

    def _is_resized(self, entry: Entry, name: str) -> bool:
        """Whether its size alone says that it is not what was primed."""
        return self._sizes.get(name, entry.stat.st_size) != entry.stat.st_size

    def _require_fit(self, entry: Entry) -> None:
        """Skips an output that would not be delivered."""
        size = entry.stat.st_size
        if size > self._caps.file_bytes:
            raise _SkipError(Reason.TOO_LARGE)
        if self._inline_left is not None and size > self._inline_left:
            raise _SkipError(Reason.INLINE_BUDGET)
        if len(self.found.files) >= self._caps.files:
            raise _SkipError(Reason.TOO_MANY)

    def _hash(self, entry: Entry, *, primed: bool) -> str:
        """The hash, from the cache or by reading."""
        known = self._cache.get(entry.parts, entry.stat)
        if known is not None:
            return known
        size = entry.stat.st_size
        if size > self._caps.file_bytes and not primed:
            raise _SkipError(Reason.TOO_LARGE)
        holes = holes_of(entry.stat)
        if size > self._read_left or holes > self._holes_left:
            self.found.uncompared = True
            raise _SkipError(Reason.NOT_COMPARED)
        self._read_left -= size
        self._holes_left -= holes
        hashed = _read(entry, self._stop)
        if hashed.fingerprint != Fingerprint.of(entry.stat):
            raise _SkipError(Reason.CHANGED_WHILE_READ)
        self._cache.put(entry.parts, hashed)
        return hashed.sha256


def _read(entry: Entry, stop: Stop) -> Hashed:
    try:
        fd = entry.open()
        try:
            return hash_file(fd, stop=stop)
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
