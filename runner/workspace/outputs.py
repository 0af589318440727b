"""Outputs: what is in the workspace that the client does not have yet.

The bytes decide: size and mtime can be forged. A file is not an output if its hash is that of what
was primed at its path, or of what the client received from that path last. Everything else is one,
or is named in `skipped` with the reason.

What an output is stands here, and how one is read; `collecting` finds them.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from enum import StrEnum

from runner.workspace.fingerprint import ChangedWhileReadError
from runner.workspace.paths import DEPTH_MAX, SafePath
from runner.workspace.priming import Primed
from runner.workspace.tree import Tree


class Status(StrEnum):
    """`MODIFIED`: the client had, or gave, another file at this path."""

    NEW = "new"
    MODIFIED = "modified"


class Reason(StrEnum):
    """Why a file is not returned. These go over the wire."""

    TOO_MANY = "too_many"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    #: More than what is left of the bytes that a result may carry.
    INLINE_BUDGET = "inline_budget"
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

    #: What runners of this family return at most. The walk is sorted, so it is the same 50 again.
    files: int = 50
    file_bytes: int = 512 << 20
    #: Read and hashed altogether; what is known from the cache is free.
    read_bytes: int = 4 << 30
    #: Of those, in holes: one of any size costs a program nothing, and to hash it what data costs.
    hole_bytes: int = 1 << 30
    #: Of outputs altogether; None for no bound of their own. What is over it is not read.
    inline_bytes: int | None = None
    depth: int = DEPTH_MAX
    #: Entries of the tree that are looked at.
    entries: int = 250_000
    #: Skipped files that are named; the rest are only counted.
    skipped: int = 256
    empty_dirs: int = 50


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
    #: Where it was left out for its size, and can be had otherwise.
    size: int | None = None


@dataclass(slots=True)
class Outputs:
    """What a collection found, each list in the order of the walk.

    `unchanged`: primed files that are as they were put. `skipped_total` counts those that are not
    named as well. `complete`: the whole tree was looked at. `uncompared`: what may be read was not
    enough.
    """

    files: list[Output] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_total: int = 0
    empty_dirs: list[SafePath] = field(default_factory=list)
    unchanged: list[SafePath] = field(default_factory=list)
    complete: bool = True
    uncompared: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether with larger caps on looking and reading there could be more."""
        return self.uncompared or not self.complete


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
