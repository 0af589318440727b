"""The cache of pushed inputs: files in a root-only directory, bounded, least recently used first.

An entry is one file. Its name is all there is to know of it, so there is no index to fall behind:

    inputs/<key>.<sha256 of the bytes>.<ro|rw>

mtime is when it was last asked for. Entries come in by rename, so a daemon that dies leaves whole
ones. The bytes are verified against the name before they are used. All of it blocks.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from runner.workspace.descent import Parts
from runner.workspace.fingerprint import ChangedWhileReadError, Fingerprint, hash_file
from runner.workspace.stopping import NEVER, Stop, Stopped
from runner.workspace.tree import Kind, Tree

log = logging.getLogger(__name__)

#: Empty inputs cost no bytes of the budget but an inode each.
ENTRIES_MAX = 16_384
_NAME = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{64})\.(ro|rw)")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A whole file in staging that is to become the entry of `key`."""

    key: str
    parts: Parts
    sha256: str
    size: int
    read_only: bool


@dataclass(slots=True)
class _Entry:
    """`verified`: how the file looked when its bytes were last seen to be right."""

    key: str
    sha256: str
    size: int
    read_only: bool
    pins: int = 0
    dropped: bool = False
    verified: Fingerprint | None = None

    @property
    def parts(self) -> Parts:
        mode = "ro" if self.read_only else "rw"
        return (f"{self.key}.{self.sha256}.{mode}".encode(),)


@dataclass(frozen=True, slots=True)
class Pinned:
    """An entry that stays until it is unpinned, whatever is evicted."""

    entry: _Entry
    tree: Tree

    @property
    def parts(self) -> Parts:
        """Where its bytes are, below `tree`."""
        return self.entry.parts

    @property
    def sha256(self) -> str:
        """Hex."""
        return self.entry.sha256

    @property
    def size(self) -> int:
        """Bytes."""
        return self.entry.size

    @property
    def read_only(self) -> bool:
        """Whether whoever pushed it said that programs may not change it."""
        return self.entry.read_only


class InputCache:
    """One per daemon; any thread may use it."""

    def __init__(self, tree: Tree, *, max_bytes: int) -> None:
        """Adopts what an earlier daemon left in `tree`, and removes what is not an entry."""
        self._tree = tree
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._bytes = 0
        #: Least recently used first.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._load()

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return self._bytes

    def missing(self, keys: Iterable[str], stop: Stop = NEVER) -> list[str]:
        """Those that are not here, in their order. The others count as used now."""
        absent = []
        for key in keys:
            pinned = self.pin(key, stop)
            if pinned is None:
                absent.append(key)
            else:
                self.unpin(pinned)
        return absent

    def pin(self, key: str, stop: Stop = NEVER) -> Pinned | None:
        """The entry with its bytes verified, or None; a damaged one is not there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            entry.pins += 1
            self._entries.move_to_end(key)
        pinned = Pinned(entry, self._tree)
        try:
            is_sound = self._is_sound(entry, stop)
        except Stopped:
            self.unpin(pinned)
            raise
        if is_sound:
            return pinned
        log.warning("a cached input was damaged", extra={"key": key})
        with self._lock:
            entry.pins -= 1
            self._drop(entry)
        return None

    def unpin(self, pinned: Pinned) -> None:
        """Lets the entry go."""
        with self._lock:
            pinned.entry.pins -= 1
            if pinned.entry.dropped:
                self._remove_unpinned(pinned.entry)
            self._trim()

    def store(self, staging: Tree, arrivals: Sequence[Arrival]) -> None:
        """Takes files out of staging, replacing entries of the same keys; then keeps the budget."""
        with self._lock:
            for arrival in arrivals:
                entry = _Entry(arrival.key, arrival.sha256, arrival.size, arrival.read_only)
                before = self._entries.get(arrival.key)
                if before is not None and before.parts == entry.parts:
                    # The same bytes: whoever reads the old file goes on reading it.
                    staging.move(arrival.parts, self._tree, entry.parts)
                    before.verified = None
                    self._entries.move_to_end(arrival.key)
                    continue
                staging.move(arrival.parts, self._tree, entry.parts)
                if before is not None:
                    self._drop(before)
                self._entries[arrival.key] = entry
                self._bytes += entry.size
            # Over the budget, if need be, while others are in use: what just came stays.
            self._trim(keep={arrival.key for arrival in arrivals})

    def evict(self, needed_bytes: int) -> int:
        """Drops entries that nobody uses until `needed_bytes` are free; how many it dropped."""
        with self._lock:
            dropped = freed = 0
            for entry in [e for e in self._entries.values() if not e.pins]:
                self._drop(entry)
                dropped += 1
                freed += entry.size
                if freed >= needed_bytes:
                    break
        return dropped

    def clear(self) -> None:
        """Drops all there is. Nobody may be using any of it. Raises OSError if something stays."""
        with self._lock:
            for entry in list(self._entries.values()):
                self._drop(entry)
            self._tree.clear()

    def _is_sound(self, entry: _Entry, stop: Stop) -> bool:
        """Reads the bytes unless they were verified and ctime says that nobody wrote since."""
        try:
            fd = self._tree.open_file(entry.parts)
        except OSError:
            return False
        try:
            known = Fingerprint.of(os.fstat(fd)) == entry.verified
            if not known and hash_file(fd, stop=stop).sha256 != entry.sha256:
                return False
            # Being used is told to the next daemon by mtime, which moves ctime as well.
            self._tree.set_mtime(entry.parts, time.time_ns())
            entry.verified = Fingerprint.of(os.fstat(fd))
        except (OSError, ChangedWhileReadError):
            return False
        finally:
            os.close(fd)
        return True

    def _trim(self, keep: Set[str] = frozenset()) -> None:
        while self._bytes > self.max_bytes or len(self._entries) > ENTRIES_MAX:
            idle = (e for e in self._entries.values() if not e.pins and e.key not in keep)
            oldest = next(idle, None)
            if oldest is None:
                return
            self._drop(oldest)

    def _drop(self, entry: _Entry) -> None:
        if entry.dropped:
            return
        entry.dropped = True
        self._bytes -= entry.size
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
        self._remove_unpinned(entry)

    def _remove_unpinned(self, entry: _Entry) -> None:
        again = self._entries.get(entry.key)
        if entry.pins or (again is not None and again.parts == entry.parts):
            return
        try:
            self._tree.remove(entry.parts)
        except OSError:
            # It takes space until the next start; it is never found again before that.
            log.exception("a dropped input could not be removed")

    def _load(self) -> None:
        found: list[tuple[int, _Entry]] = []
        for each in list(self._tree.walk(max_depth=1)):
            match = _NAME.fullmatch(each.name.decode("ascii", "replace"))
            if match is None or each.kind is not Kind.FILE:
                self._tree.remove(each.parts)
                continue
            entry = _Entry(match[1], match[2], each.stat.st_size, match[3] == "ro")
            found.append((each.stat.st_mtime_ns, entry))
        for _, entry in sorted(found, key=lambda pair: pair[0]):
            before = self._entries.pop(entry.key, None)
            self._entries[entry.key] = entry
            self._bytes += entry.size
            if before is not None:
                self._drop(before)
        self._trim()
