"""The strict streaming reader: tar blocks in, checked members out. Pure: it touches no file.

Members have to come in order (component by component, as bytes), each right below a directory
that is still open. That makes a duplicate, a missing parent and a member below a file visible
with no more memory than one frame per level.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from runner.checkpoint import deltahead, tarformat
from runner.checkpoint.deltahead import DeltaHead
from runner.checkpoint.handover import Block
from runner.checkpoint.limits import BLOCK, LEAF_BYTES_MAX, SYMLINK_BYTES_MAX, Limits
from runner.checkpoint.sidecar import MEMBER_NAME, ArchiveFacts
from runner.checkpoint.tarformat import PAX_30, Member
from runner.checkpoint.tarparse import Records, member_of, parse_header, parse_pax
from runner.errors import (
    CheckpointCorrupt,
    CheckpointTooLarge,
    CheckpointUnauthentic,
    CheckpointUnsafe,
)

ROOT = b"session"
_ZERO_BLOCK = bytes(BLOCK)
_NO_RECORDS = Records()
_NOT_PLAIN = frozenset((b"", b".", b".."))


class Placed(NamedTuple):
    """A member whose place is right. `leaf` goes into the open directory at `depth` - 1.

    The root has depth 0 and an empty leaf.
    """

    member: Member
    leaf: bytes
    depth: int


@dataclass(slots=True)
class _Frame:
    """A directory that members may still go into, and the last one that did."""

    path: bytes
    last: bytes = b""


class ArchiveReader:
    """One archive. Iterate `members`, take each file's `body` before the next, then the results.

    `sidecar` is the last member's bytes and `facts` what was read before it; both are only there
    when `members` has come to its end, and then the archive's structure is whole.
    """

    def __init__(self, blocks: Iterable[Block], limits: Limits) -> None:
        """`blocks` are the tar's bytes, cut anywhere; their source checks its own end."""
        self._blocks = iter(blocks)
        self._limits = limits
        self._block = b""
        self._at = 0
        self._before = 0  # Tar bytes of the blocks that are gone, all of them in the digest.
        self._digest = hashlib.sha256()
        self._entries = 0
        self._frames: list[_Frame] = []
        self._body_left = 0
        self.sidecar = b""
        self.facts: ArchiveFacts | None = None

    def head(self) -> DeltaHead | None:
        """What a delta begins with, or None for a full archive. Called before `members`, if at all:
        without it a delta is refused for its first member's name."""
        member, header_bytes = self._peek_member()
        if member.name != deltahead.MEMBER_NAME:
            return None
        if member.kind != tarformat.FILE:
            raise CheckpointUnsafe("the head of a delta is not a file", reason="type")
        if member.size > self._limits.gone_bytes + BLOCK:
            raise CheckpointTooLarge("too many names are gone", reason="removed")
        return deltahead.parse(self._take_small(member, header_bytes), self._limits)

    def members(self) -> Iterator[Placed]:
        """Every member from `session/` on, in order. Raises what the archive deserves."""
        while True:
            member, header_bytes = self._peek_member()
            if member.name == MEMBER_NAME:
                break
            placed = self._place(member)
            self._at += header_bytes
            self._count(member)
            self._body_left = member.size
            yield placed
            for _ in self.body():
                pass
            self._take_padding(member.size)
        if not self._frames:
            raise CheckpointUnsafe("it has no session/", reason="order")
        self._digest.update(memoryview(self._block)[: self._at])
        facts = ArchiveFacts(
            sha256=self._digest.hexdigest(), entries=self._entries, bytes=self._before + self._at
        )
        self.sidecar = self._take_sidecar(member, header_bytes)
        self._take_end()
        self.facts = facts

    def body(self) -> Iterator[memoryview]:
        """The bytes of the member that `members` gave last, in pieces."""
        while self._body_left:
            if self._at == len(self._block):
                self._refill()
            piece = memoryview(self._block)[self._at : self._at + self._body_left]
            self._at += len(piece)
            self._body_left -= len(piece)
            yield piece

    def _refill(self) -> None:
        """Gets more bytes behind those not yet consumed; the consumed ones go to the digest."""
        self._digest.update(memoryview(self._block)[: self._at])
        self._before += self._at
        for block in self._blocks:
            self._block = self._block[self._at :] + block
            self._at = 0
            return
        raise CheckpointCorrupt("the archive is truncated")

    def _peek(self, length: int) -> None:
        """Makes `length` bytes stand at `_at` without consuming them."""
        while len(self._block) - self._at < length:
            self._refill()

    def _peek_member(self) -> tuple[Member, int]:
        """The next member and the length of its headers, which are not consumed yet."""
        self._peek(BLOCK)
        block = self._block[self._at : self._at + BLOCK]
        if block == PAX_30:
            return self._peek_described(30)
        if block == _ZERO_BLOCK:
            raise CheckpointUnauthentic("it ends without a sidecar", reason="sidecar")
        header = parse_header(block)
        if header.kind == tarformat.PAX:
            return self._peek_described(header.size)
        return member_of(block, header, _NO_RECORDS), BLOCK

    def _peek_described(self, pax_bytes: int) -> tuple[Member, int]:
        """The next member, whose first header is a pax one with that many bytes of records."""
        if pax_bytes > self._limits.pax_bytes:
            raise CheckpointTooLarge("a member's name is too long", reason="name")
        body_end = BLOCK + pax_bytes
        described = body_end + tarformat.padding(pax_bytes)
        self._peek(described + BLOCK)
        headers = self._block[self._at : self._at + described + BLOCK]
        records = parse_pax(headers[BLOCK:body_end])
        if headers[body_end:described] != _ZERO_BLOCK[: described - body_end]:
            raise CheckpointCorrupt("the padding of a pax header is not zero")
        block = headers[described:]
        return member_of(block, parse_header(block), records), described + BLOCK

    def _place(self, member: Member) -> Placed:
        """Finds the open directory that the member goes into, or refuses its name."""
        if len(member.name) > self._limits.name_bytes:
            raise CheckpointTooLarge("a member's name is too long", reason="name")
        _refuse_link(member, self._limits)
        parent, _, leaf = member.name.rpartition(b"/")
        if member.name == ROOT and not self._frames:
            if member.kind != tarformat.DIRECTORY:
                raise CheckpointUnsafe("session is not a directory", reason="order")
            self._frames.append(_Frame(ROOT))
            return Placed(member, b"", 0)
        depth = len(self._frames)
        while depth and self._frames[depth - 1].path != parent:
            depth -= 1
        if not depth or leaf in _NOT_PLAIN or len(leaf) > LEAF_BYTES_MAX:
            raise _misplaced(member.name)
        frame = self._frames[depth - 1]
        if leaf <= frame.last:
            raise CheckpointUnsafe("a member is there twice or out of order", reason="order")
        frame.last = leaf
        del self._frames[depth:]
        if member.kind == tarformat.DIRECTORY:
            self._frames.append(_Frame(member.name))
        return Placed(member, leaf, depth)

    def _count(self, member: Member) -> None:
        """Counts an entry and its bytes before one of them is taken."""
        self._entries += 1
        if self._entries > self._limits.entries:
            raise CheckpointTooLarge("it has too many entries", reason="entries")
        if self._before + self._at + member.size > self._limits.expanded_bytes:
            raise CheckpointTooLarge("expanded, it is larger than the cap", reason="expanded")

    def _take_padding(self, size: int) -> None:
        length = tarformat.padding(size)
        if not length:
            return
        self._peek(length)
        if self._block[self._at : self._at + length] != _ZERO_BLOCK[:length]:
            raise CheckpointCorrupt("the padding of a member is not zero")
        self._at += length

    def _take_sidecar(self, member: Member, header_bytes: int) -> bytes:
        if member.kind != tarformat.FILE:
            raise CheckpointUnsafe("the sidecar is not a file", reason="type")
        if member.size > self._limits.sidecar_bytes:
            raise CheckpointTooLarge("the sidecar is larger than its cap", reason="sidecar")
        return self._take_small(member, header_bytes)

    def _take_small(self, member: Member, header_bytes: int) -> bytes:
        """The whole body of a member whose size was found bearable."""
        self._at += header_bytes
        self._body_left = member.size
        body = b"".join(self.body())
        self._take_padding(member.size)
        return body

    def _take_end(self) -> None:
        """Two zero blocks, and nothing after them."""
        self._peek(BLOCK)
        if self._block[self._at : self._at + BLOCK] != _ZERO_BLOCK:
            raise CheckpointUnsafe("there is something behind the sidecar", reason="trailing")
        self._peek(2 * BLOCK)
        if self._block[self._at :] != tarformat.END or any(self._blocks):
            raise CheckpointUnsafe("there is something behind the end blocks", reason="trailing")


def _refuse_link(member: Member, limits: Limits) -> None:
    """A symlink's target is data, it is never followed here. A hard link's names a member."""
    if member.kind == tarformat.SYMLINK and len(member.link) > SYMLINK_BYTES_MAX:
        raise CheckpointUnsafe("a symlink's target is too long", reason="link")
    if member.kind == tarformat.HARD_LINK:
        parts = member.link.split(b"/")
        outside = parts[0] != ROOT or len(parts) < 2 or not _NOT_PLAIN.isdisjoint(parts)
        if outside or len(member.link) > limits.name_bytes:
            raise CheckpointUnsafe("a hard link leads out of session/", reason="link")


def _misplaced(member_name: bytes) -> CheckpointUnsafe:
    """Says what is wrong with a name that fits no open directory."""
    parts = member_name.split(b"/")
    if member_name.startswith(b"/"):
        return CheckpointUnsafe("a member's name is absolute", reason="name")
    if b".." in parts:
        return CheckpointUnsafe("a member's name has ..", reason="name")
    if not _NOT_PLAIN.isdisjoint(parts) or any(len(part) > LEAF_BYTES_MAX for part in parts):
        return CheckpointUnsafe("a member's name is not canonical", reason="name")
    if parts[0] != ROOT:
        return CheckpointUnsafe("a member is not below session/", reason="name")
    return CheckpointUnsafe("a member comes without or before its directory", reason="order")
