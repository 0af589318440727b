"""What of a workspace goes into its checkpoint, in the archive's order, and the state's name.

The same walk is made twice: once for the plan (caps and ETag, no file body is read) and once for
the stream, which has to find the same state or fails.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from runner.checkpoint import tarformat
from runner.checkpoint.limits import Limits
from runner.checkpoint.reader import ROOT
from runner.checkpoint.sidecar import SidecarFacts, fingerprint
from runner.checkpoint.tarformat import Member
from runner.errors import CheckpointTooLarge, Internal
from runner.workspace.tree import Entry, Kind, TooManyEntriesError, Tree

_BELOW = ROOT + b"/"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a save would stream. `tar_bytes` and `entries` are without the sidecar.

    `state` names the workspace's state: names, kinds, modes, sizes, inodes, ctimes, link targets.
    A program can set its files' mtime but not their ctime.
    """

    state: str
    tar_bytes: int
    entries: int
    omitted: int

    def etag(self, facts: SidecarFacts) -> str:
        """A strong entity tag (RFC 9110 section 8.8.3) of the state and of what is sealed with it.

        The moment of the save is no part of it.
        """
        named = hashlib.sha256(self.state.encode() + fingerprint(facts))
        return f'"{named.hexdigest()[:40]}"'


class Inventory:
    """One walk. `state` and `omitted` are there when `members` has come to its end."""

    def __init__(self, tree: Tree, limits: Limits) -> None:
        self._tree = tree
        self._limits = limits
        self._state = hashlib.sha256()
        self._first_names: dict[tuple[int, int], bytes] = {}
        self.omitted = 0

    def members(self) -> Iterator[tuple[Member, os.stat_result, Entry | None]]:
        """Every member with its lstat and its entry; the root has none."""
        status = self._tree.stat()
        root = _member(ROOT, tarformat.DIRECTORY, status)
        self._note(root, status)
        yield root, status, None
        try:
            # The root is an entry of the archive as well.
            for entry in self._tree.walk(max_entries=self._limits.entries - 1):
                member = self._member_of(entry)
                if member is not None:
                    self._note(member, entry.stat)
                    yield member, entry.stat, entry
        except TooManyEntriesError:
            raise CheckpointTooLarge("it has too many entries", reason="entries") from None

    def state(self) -> str:
        """The name of the state that the walk found."""
        return self._state.hexdigest()

    def _member_of(self, entry: Entry) -> Member | None:
        """None for a socket, fifo or device: nothing that could be brought back to life."""
        parts, kind, status, _ = entry
        name = _BELOW + b"/".join(parts)
        if kind is Kind.FILE:
            first = name
            if status.st_nlink > 1:
                first = self._first_names.setdefault((status.st_dev, status.st_ino), name)
            if first is name:
                return _member(name, tarformat.FILE, status, size=status.st_size)
            return Member(name, tarformat.HARD_LINK, 0, 0, 0, first)
        if kind is Kind.DIRECTORY:
            return _member(name, tarformat.DIRECTORY, status)
        if kind is Kind.SYMLINK:
            return Member(
                name,
                tarformat.SYMLINK,
                tarformat.SYMLINK_MODE,
                0,
                status.st_mtime_ns,
                entry.readlink(),
            )
        if kind is Kind.UNLISTED:
            raise Internal("a directory of the workspace cannot be listed", reason="unlisted")
        self.omitted += 1
        return None

    def _note(self, member: Member, status: os.stat_result) -> None:
        self._state.update(
            b"%b\0%b\0%o %d %d %d\n"
            % (
                member.name,
                member.link,
                status.st_mode,
                status.st_size,
                status.st_ino,
                status.st_ctime_ns,
            )
        )


def plan(tree: Tree, limits: Limits) -> Plan:
    """Walks without reading a file body. Raises `CheckpointTooLarge`. Blocks."""
    inventory = Inventory(tree, limits)
    entries = tar_bytes = 0
    for member, _, _ in inventory.members():
        entries += 1
        tar_bytes += tarformat.encoded_size(member)
        if tar_bytes > limits.expanded_bytes:
            raise CheckpointTooLarge("expanded, it is larger than the cap", reason="expanded")
        if len(member.name) > limits.name_bytes:
            raise CheckpointTooLarge("a name is longer than the cap", reason="name")
    return Plan(inventory.state(), tar_bytes, entries, inventory.omitted)


def _member(name: bytes, kind: bytes, status: os.stat_result, *, size: int = 0) -> Member:
    mode = status.st_mode & tarformat.MODE_BITS
    return Member(name, kind, mode, size, status.st_mtime_ns, b"")
