"""Priming: the inputs into the workspace, in two phases, so that a bad one changes nothing.

    survey   what stands at the destinations now           reads the workspace
    plan     what to do with each input                    pure
    stage    the bytes into a root-only directory          a full disk ends here, nothing changed
    place    rename into place                             the session is dirty until it is whole

Conflicts between names are refused before all this (`paths.refuse_conflicts`). Whether two inputs
are the same original is decided by their bytes alone: a client may give one file a new id in every
request, and an id may come to name other bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from runner.workspace.descent import Parts
from runner.workspace.paths import SafePath
from runner.workspace.tree import Tree

READ_ONLY_MODE = 0o444
WRITABLE_MODE = 0o644


@dataclass(frozen=True, slots=True)
class Inline:
    """The bytes came with the request; they are whatever the client says they are."""

    content: bytes = field(repr=False)
    #: Hex.
    sha256: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", hashlib.sha256(self.content).hexdigest())

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.content)


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of this request that a fetcher already wrote below the staging tree; it is moved."""

    parts: Parts
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of a cache: copied, or cloned where the file system can.

    Never hard-linked: the program could change the cache through its own name for the file.
    """

    tree: Tree
    parts: Parts
    sha256: str
    size: int


Source = Inline | Staged | Stored


@dataclass(frozen=True, slots=True)
class Input:
    """One file that the client wants in the workspace. An inline one has no id."""

    path: SafePath
    source: Source
    read_only: bool = False
    input_id: str | None = None
    storage_session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Primed:
    """What was put at a path: the original's hash (hex), and what the client calls it."""

    sha256: str
    read_only: bool = False
    input_id: str | None = None
    storage_session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Present:
    """A regular file at an input's destination. Anything else there counts as nothing.

    `sha256` is None where `plan` does not need it (see `survey`).
    """

    sha256: str | None
    sealed: bool


class Action(StrEnum):
    """What is done with one input."""

    #: Nothing is there, something is in the way, or the original is another one.
    WRITE = "write"
    #: It is there as it should be, or it is the session's own edit of this very original.
    KEEP = "keep"
    #: A read-only input that was tampered with.
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Step:
    """One input, its hash (hex) and what is done with it."""

    input: Input
    sha256: str
    action: Action

    @property
    def record(self) -> Primed:
        """What is remembered of it once it is in place."""
        wanted = self.input
        return Primed(self.sha256, wanted.read_only, wanted.input_id, wanted.storage_session_id)


def plan(
    inputs: Iterable[Input],
    primed: Mapping[str, Primed],
    present: Mapping[SafePath, Present],
    *,
    surfaced: Mapping[str, str] | None = None,
) -> tuple[Step, ...]:
    """Decides for each input. `primed` and `surfaced` are keyed by `str(path)`.

    `surfaced` (path → hash of an output the client has) makes an output that comes back as an input
    the same original as the file it came from.
    """
    steps = []
    for each in inputs:
        path, sha256 = str(each.path), each.source.sha256
        action = _decide(
            each, sha256, primed.get(path), present.get(each.path), (surfaced or {}).get(path)
        )
        steps.append(Step(each, sha256, action))
    return tuple(steps)


def _decide(
    wanted: Input, sha256: str, before: Primed | None, there: Present | None, output: str | None
) -> Action:
    if wanted.read_only:
        if there is not None and there.sealed and there.sha256 == sha256:
            return Action.KEEP
        same = before is not None and before.read_only and before.sha256 == sha256
        return Action.RESTORE if same else Action.WRITE
    if there is None or there.sealed:
        # A deleted input is put back: nothing is overwritten by that. A sealed file was read-only
        # so far and is replaced by one that the session may write.
        return Action.WRITE
    originals = (before.sha256 if before is not None else None, output, there.sha256)
    return Action.KEEP if sha256 in originals else Action.WRITE


def supersede(primed: Mapping[str, Primed], steps: Iterable[Step]) -> dict[str, Primed]:
    """The primed records after these steps.

    An input that took the place of a directory ends what was primed below it, one below a former
    file ends that file's record.
    """
    records = dict(primed)
    for step in steps:
        path = str(step.input.path)
        above = {path[:index] for index, char in enumerate(path) if char == "/"}
        for other in [o for o in records if o in above or o.startswith(f"{path}/")]:
            del records[other]
        records[path] = step.record
    return records
