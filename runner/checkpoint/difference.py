"""What of a tree is new or different since an index of it was made, and what is gone. Pure.

Two sequences in the same order are gone through side by side: memory grows with what is gone and
with depth, not with the tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from runner.checkpoint import tarformat
from runner.checkpoint.tarformat import Member
from runner.checkpoint.treeindex import Indexed, TreeDigest, order_key
from runner.workspace.tree import Entry

#: What `Inventory.members` gives.
Found: TypeAlias = tuple[Member, os.stat_result, Entry | None]
_BELOW = b"\0"


class TooMuchGoneError(Exception):
    """More names are gone than a delta holds: a full archive is the better answer."""


class _Open(NamedTuple):
    """A directory that the walk is in."""

    prefix: bytes
    found: Found


class Difference:
    """One comparison. `gone` and `tree` are there when `members` has come to its end."""

    def __init__(
        self,
        before: Iterable[Indexed],
        now: Iterable[Found],
        *,
        max_gone_bytes: int,
        digested: bool,
    ) -> None:
        """`digested`: `tree` is wanted."""
        self._before = iter(before)
        self._now = now
        self._left = max_gone_bytes
        self._next: Indexed | None = None
        self._next_key = b""
        self._covered = b""
        self._waiting: list[_Open] = []
        self._tree = TreeDigest() if digested else None
        #: Names that are gone, none of them below another.
        self.gone: list[bytes] = []

    @property
    def tree(self) -> str:
        """The digest of the whole tree as it is now."""
        assert self._tree is not None
        return self._tree.hexdigest()

    def members(self) -> Iterator[Found]:
        """What is to be sent, each directory before what is in it, the root always."""
        self._advance()
        opened: list[_Open] = []  # Those above what the walk is at.
        sent = 0  # How many of them have been sent.
        for found in self._now:
            member, status, _ = found
            if self._tree is not None:
                self._tree.add(member)
            key = order_key(member.name)
            while opened and not key.startswith(opened[-1].prefix):
                opened.pop()
            sent = min(sent, len(opened))
            is_same = self._is_same(key, member, status)
            if member.kind == tarformat.DIRECTORY:
                opened.append(_Open(key + _BELOW, found))
                if not is_same or len(opened) == 1:
                    yield from (each.found for each in opened[sent:])
                    sent = len(opened)
            elif not is_same:
                yield from (each.found for each in opened[sent:])
                sent = len(opened)
                yield found
        while self._next is not None:
            self._note_gone(self._next)
            self._advance()

    def _is_same(self, key: bytes, member: Member, status: os.stat_result) -> bool:
        """Goes on in the index to where the walk is."""
        before = self._next
        while before is not None and self._next_key < key:
            self._note_gone(before)
            before = self._advance()
        if before is None or self._next_key != key:
            return False
        same = before.is_same(member, status)
        if member.kind != tarformat.DIRECTORY:
            # If it was a directory, what takes its place takes all of it.
            self._covered = key + _BELOW
        self._advance()
        return same

    def _note_gone(self, before: Indexed) -> None:
        key = self._next_key
        if self._covered and key.startswith(self._covered):
            return
        self._covered = key + _BELOW
        self._left -= len(before.name) + 1
        if self._left < 0:
            raise TooMuchGoneError
        self.gone.append(before.name)

    def _advance(self) -> Indexed | None:
        self._next = before = next(self._before, None)
        if before is not None:
            self._next_key = order_key(before.name)
        return before
