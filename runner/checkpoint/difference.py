"""What of a tree is new or different since an index of it was made, and what is gone. Pure.

Two sequences in the same order are gone through side by side: memory grows with what is gone and
with depth, not with the tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from runner.checkpoint import tarformat
from runner.checkpoint.tarformat import Member
from runner.checkpoint.treeindex import Indexed, Lines, TreeDigest, order_key
from runner.workspace.tree import Entry

#: What a walk finds: the member, its lstat, its entry (the root has none), its line in `treeindex`.
Found: TypeAlias = tuple[Member, os.stat_result, Entry | None, bytes]
_BELOW = b"\0"


class TooMuchGoneError(Exception):
    """More names are gone than a delta holds: a full archive is the better answer."""


class Difference:
    """One comparison. `gone` and `tree` are there when `members` has come to its end."""

    def __init__(
        self, before: Lines, now: Iterable[Found], *, max_gone_bytes: int, digested: bool
    ) -> None:
        """`digested`: `tree` is wanted."""
        self._before = before
        self._now = now
        self._left = max_gone_bytes
        #: The line of the index that was taken apart, and is not behind the walk yet.
        self._next: Indexed | None = None
        self._next_key = b""
        self._covered = b""
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
        opened: list[tuple[bytes, Found]] = []  # The directories above what the walk is at.
        sent = 0  # How many of them have been sent.
        for found in self._now:
            member, _, _, line = found
            if self._tree is not None:
                self._tree.add(member)
            while opened and not member.name.startswith(opened[-1][0]):
                opened.pop()
            sent = min(sent, len(opened))
            is_same = self._is_same(member, line)
            is_directory = member.kind == tarformat.DIRECTORY
            if is_directory:
                opened.append((member.name + b"/", found))
            if is_same and sent:
                continue
            yield from (each for _, each in opened[sent:])
            sent = len(opened)
            if not is_directory:
                yield found
        if self._next is None:
            self._advance()
        while self._next is not None:
            self._note_gone(self._next)
            self._advance()

    def _is_same(self, member: Member, line: bytes) -> bool:
        """Goes on in the index to where the walk is."""
        if self._next is None:
            if self._before.take(line):
                return True
            self._advance()
        key = order_key(member.name)
        while self._next is not None and self._next_key < key:
            self._note_gone(self._next)
            self._advance()
        if self._next is None or self._next_key != key:
            return False
        if member.kind != tarformat.DIRECTORY:
            # If it was a directory, what takes its place takes all of it.
            self._covered = key + _BELOW
        is_same = self._next.line == line
        self._next = None
        return is_same

    def _note_gone(self, before: Indexed) -> None:
        if self._covered and self._next_key.startswith(self._covered):
            return
        self._covered = self._next_key + _BELOW
        self._left -= len(before.name) + 1
        if self._left < 0:
            raise TooMuchGoneError
        self.gone.append(before.name)

    def _advance(self) -> None:
        self._next = before = self._before.next()
        if before is not None:
            self._next_key = order_key(before.name)
