"""What of a workspace goes into its checkpoint, in the archive's order, and the state's name.

The same walk is made twice: once for the plan (caps and ETag, no file body is read) and once for
the stream, which has to find the same state or fails. With a base, both are held against it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace

from runner.checkpoint import deltahead, tarformat, treeindex
from runner.checkpoint.bases import Base
from runner.checkpoint.difference import Difference, Found, TooMuchGoneError
from runner.checkpoint.limits import Limits
from runner.checkpoint.reader import ROOT
from runner.checkpoint.sidecar import SidecarFacts, fingerprint
from runner.checkpoint.tarformat import Member
from runner.checkpoint.treeindex import BaseUnusableError, LineDigest, TreeDigest
from runner.errors import CheckpointTooLarge, Internal
from runner.workspace.tree import Entry, Kind, TooManyEntriesError, Tree

#: Reason of a save whose workspace did not hold still.
UNSTABLE = "unstable"

_BELOW = ROOT + b"/"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeltaPlan:
    """What of the tree a delta would send. `head` is its first member's body."""

    base: Base
    head: bytes
    gone: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a save would stream. `tar_bytes` and `entries` are without the sidecar; `expanded` are
    the bytes of a full archive.

    `state` names the workspace's state: names, kinds, modes, sizes, inodes, ctimes, link targets.
    `newest_ns` is the latest of its ctimes. `delta` is None for a full archive.
    """

    state: str
    tar_bytes: int
    entries: int
    omitted: int
    newest_ns: int
    expanded: int
    delta: DeltaPlan | None = None

    def etag(self, facts: SidecarFacts) -> str:
        """A strong entity tag (RFC 9110 section 8.8.3) of the state and of what is sealed with it.

        The moment of the save is no part of it.
        """
        named = hashlib.sha256(self.state.encode() + fingerprint(facts))
        return f'"{named.hexdigest()[:40]}"'


class Inventory:
    """One walk. `state`, `omitted` and `newest_ns` are there when `members` has come to its end."""

    def __init__(
        self, tree: Tree, limits: Limits, *, index: Callable[[bytes], None] | None = None
    ) -> None:
        """`index` is given the lines that are the state's name, many at a time."""
        self._tree = tree
        self._limits = limits
        self._index = index
        self._state = LineDigest()
        self._first_names: dict[tuple[int, int], bytes] = {}
        self.omitted = 0
        self.newest_ns = 0

    def members(self) -> Generator[Found, None, None]:
        """Every member with its lstat and its entry; the root has none."""
        status = self._tree.stat()
        root = _directory(ROOT, status)
        yield root, status, None, self._note(root, status)
        try:
            # The root is an entry of the archive as well.
            for entry in self._tree.walk(max_entries=self._limits.entries - 1):
                parts, kind, status, _ = entry
                member: Member | None
                if kind is Kind.FILE and status.st_nlink == 1:
                    member = _file(_BELOW + b"/".join(parts), status)
                else:
                    member = self._member_of(entry)
                if member is not None:
                    yield member, status, entry, self._note(member, status)
        except TooManyEntriesError:
            raise CheckpointTooLarge("it has too many entries", reason="entries") from None
        if self._index is not None:
            self._index(self._state.flush())

    def state(self) -> str:
        """The name of the state that the walk found."""
        return self._state.hexdigest()

    def _member_of(self, entry: Entry) -> Member | None:
        """None for a socket, fifo or device: nothing that could be brought back to life."""
        parts, kind, status, _ = entry
        name = _BELOW + b"/".join(parts)
        if kind is Kind.FILE:
            first = self._first_names.setdefault((status.st_dev, status.st_ino), name)
            if first is name:
                return _file(name, status)
            return Member(name, tarformat.HARD_LINK, 0, 0, 0, first)
        if kind is Kind.DIRECTORY:
            return _directory(name, status)
        if kind is Kind.SYMLINK:
            return Member(
                name,
                tarformat.SYMLINK,
                tarformat.SYMLINK_MODE,
                0,
                status.st_mtime_ns,
                _target(entry),
            )
        if kind is Kind.UNLISTED:
            raise Internal("a directory of the workspace cannot be listed", reason="unlisted")
        self.omitted += 1
        return None

    def _note(self, member: Member, status: os.stat_result) -> bytes:
        # For every member of a workspace, twice a checkpoint: `max` would take twice as long.
        if status.st_ctime_ns > self.newest_ns:  # noqa: PLR1730
            self.newest_ns = status.st_ctime_ns
        line = treeindex.line(member, status)
        lines = self._state.add(line)
        if lines is not None and self._index is not None:
            self._index(lines)
        return line


def _target(entry: Entry) -> bytes:
    try:
        return entry.readlink()
    except OSError as error:
        # EINVAL, ENOENT: it was a link a moment ago.
        raise changed() from error


def changed() -> Internal:
    """A stream cannot take back what it has said: it is cut, and the whole save may be repeated."""
    return Internal("the workspace changed while it was saved", reason=UNSTABLE)


@dataclass(slots=True)
class _Size:
    """Of an archive without its sidecar, as its members are counted."""

    limits: Limits
    entries: int = 0
    tar_bytes: int = 0

    def add(self, member: Member) -> None:
        self.entries += 1
        self.tar_bytes += tarformat.encoded_size(member)
        if self.tar_bytes > self.limits.expanded_bytes:
            raise CheckpointTooLarge("expanded, it is larger than the cap", reason="expanded")
        if len(member.name) > self.limits.name_bytes:
            raise CheckpointTooLarge("a name is longer than the cap", reason="name")

    def counted(self, found: Iterator[Found]) -> Iterator[Found]:
        for each in found:
            self.add(each[0])
            yield each


def plan(tree: Tree, limits: Limits, base: Base | None = None) -> Plan:
    """Walks without reading a file body. Raises `CheckpointTooLarge`. Blocks.

    A delta to `base` is planned if it is smaller than the full archive. The caps are those of a
    full archive either way.
    """
    if base is not None:
        try:
            return _plan_against(tree, limits, base)
        except BaseUnusableError:
            base.forget()
        except TooMuchGoneError:
            log.info("too much is gone for a delta")
    inventory, size = Inventory(tree, limits), _Size(limits)
    for member, _, _, _ in inventory.members():
        size.add(member)
    return _plan_of(inventory, size)


def _plan_against(tree: Tree, limits: Limits, base: Base) -> Plan:
    inventory, whole, sent = Inventory(tree, limits), _Size(limits), _Size(limits)
    difference = against(base, whole.counted(inventory.members()), limits, digested=False)
    for member, _, _, _ in difference.members():
        sent.add(member)
    planned = _plan_of(inventory, whole)
    head = deltahead.encode(base.state, [name.removeprefix(_BELOW) for name in difference.gone])
    tar_bytes = sent.tar_bytes + len(tarformat.small_file(deltahead.MEMBER_NAME, head))
    if tar_bytes >= planned.tar_bytes:
        return planned
    delta = DeltaPlan(base, head, len(difference.gone))
    return replace(planned, tar_bytes=tar_bytes, entries=sent.entries, delta=delta)


def against(base: Base, found: Iterator[Found], limits: Limits, *, digested: bool) -> Difference:
    """A walk held against a base."""
    gone_bytes = limits.gone_bytes
    return Difference(base.lines(), found, max_gone_bytes=gone_bytes, digested=digested)


def _plan_of(inventory: Inventory, size: _Size) -> Plan:
    return Plan(
        state=inventory.state(),
        tar_bytes=size.tar_bytes,
        entries=size.entries,
        omitted=inventory.omitted,
        newest_ns=inventory.newest_ns,
        expanded=size.tar_bytes,
    )


def measure(tree: Tree, limits: Limits) -> tuple[str, int, int]:
    """The digest of a tree as `DeltaFacts` has it, and its entries and bytes as a full archive.

    Raises `CheckpointTooLarge`. Blocks.
    """
    digest, size = TreeDigest(), _Size(limits)
    for member, _, _, _ in Inventory(tree, limits).members():
        digest.add(member)
        size.add(member)
    return digest.hexdigest(), size.entries, size.tar_bytes


def _file(name: bytes, status: os.stat_result) -> Member:
    mode = status.st_mode & tarformat.MODE_BITS
    return Member(name, tarformat.FILE, mode, status.st_size, status.st_mtime_ns, b"")


def _directory(name: bytes, status: os.stat_result) -> Member:
    mode = status.st_mode & tarformat.MODE_BITS
    return Member(name, tarformat.DIRECTORY, mode, 0, status.st_mtime_ns, b"")
