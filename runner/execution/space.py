"""Where one execution works: the session's workspace or a job's own. Files in, files out.

All of it blocks; the executor calls it in threads.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Literal, Protocol
from urllib.parse import quote

from runner import wire
from runner.session.hold import Hold
from runner.session.record import Dirty
from runner.workspace.collecting import collect
from runner.workspace.dataroot import DataRoot
from runner.workspace.fingerprint import ChangedWhileReadError, HashCache
from runner.workspace.outputs import Output, Outputs, Reason, read_bounded
from runner.workspace.placing import Placed, place, stage, survey
from runner.workspace.priming import Input, Primed, plan
from runner.workspace.tree import Tree

#: `skipped` reasons of ours; those of the walk are in `outputs.Reason`.
INLINE_BUDGET = "inline_budget"
NOT_WALKED = "not_walked"


@dataclass(frozen=True, slots=True)
class Inlined:
    """An output and its bytes in wire form."""

    output: Output
    content: str
    encoding: Literal["utf8", "base64"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the client gets with the result, and what it does not."""

    inlined: list[Inlined]
    skipped: list[wire.SkippedFile]
    skipped_total: int


NOTHING_WALKED = Delivery([], [wire.SkippedFile(name="*", reason=NOT_WALKED)], 1)


class Space(Protocol):
    """What the executor needs of either kind."""

    @property
    def source(self) -> str:
        """The path that nsjail binds."""

    def present(self) -> bool:
        """Whether the workspace is there."""

    def prime(self, inputs: tuple[Input, ...]) -> None:
        """Puts the inputs in place: all of them, or none and an error."""

    def collect(self, inline_max_bytes: int) -> Delivery:
        """What the client does not have yet."""

    def distrust(self, reason: Dirty) -> None:
        """The workspace must not be used again."""


class JobSpace:
    """The throw-away workspace of an execution without a session."""

    def __init__(self, data: DataRoot, job: str) -> None:
        self._data = data
        self._job = job
        self._primed: dict[str, Primed] = {}
        self.source = data.job_source(job)

    def present(self) -> bool:
        """Whether nobody removed it."""
        try:
            self._data.job(self._job).close()
        except FileNotFoundError:
            return False
        return True

    def prime(self, inputs: tuple[Input, ...]) -> None:
        """Into an empty directory: nothing can be in the way, and a failure removes all of it."""
        with self._data.job(self._job) as tree:
            placed = _prime(self._data, tree, inputs, {}, {}, HashCache(), before_placing=None)
        self._primed = dict(placed.primed)

    def collect(self, inline_max_bytes: int) -> Delivery:
        """All that the program made; nothing of it can be fetched later."""
        with self._data.job(self._job) as tree:
            found = collect(tree, self._primed, {}, cache=HashCache())
            return _deliver(tree, found, inline_max_bytes, fetchable=False)

    def distrust(self, reason: Dirty) -> None:
        """It is removed in any case."""


class SessionSpace:
    """The session's workspace, and the record that has to tell the truth about it."""

    def __init__(self, data: DataRoot, hold: Hold, cache: HashCache) -> None:
        self._data = data
        self._hold = hold
        self._cache = cache
        self.source = data.workspace_source()

    def present(self) -> bool:
        """Whether the workspace is there."""
        return self._data.workspace_present()

    def prime(self, inputs: tuple[Input, ...]) -> None:
        """The session is dirty exactly while files are being moved into place."""
        record = self._hold.record
        with self._data.workspace() as tree:
            placed = _prime(
                self._data,
                tree,
                inputs,
                record.primed,
                record.surfaced,
                self._cache,
                before_placing=self._hold,
            )
        # A file that the client has just written is no output of ours that it has.
        surfaced = {k: v for k, v in record.surfaced.items() if k not in placed.written}
        self._hold.whole(primed=placed.primed, surfaced=surfaced)

    def collect(self, inline_max_bytes: int) -> Delivery:
        """What is new since the last delivery; the rest can be fetched one by one."""
        record = self._hold.record
        with self._data.workspace() as tree:
            found = collect(tree, record.primed, record.surfaced, cache=self._cache)
            return _deliver(tree, found, inline_max_bytes, fetchable=True)

    def distrust(self, reason: Dirty) -> None:
        """Dirty from now on."""
        self._hold.tearing(reason)


def _prime(
    data: DataRoot,
    workspace: Tree,
    inputs: tuple[Input, ...],
    primed: dict[str, Primed],
    surfaced: dict[str, str],
    cache: HashCache,
    *,
    before_placing: Hold | None,
) -> Placed:
    uid, gid = data.owner.uid, data.owner.gid
    present = survey(workspace, inputs, primed, cache)
    steps = plan(inputs, primed, present, surfaced=surfaced)
    staging = stage(data.staging, steps, uid=uid, gid=gid)
    if before_placing is not None and staging.ready:
        before_placing.tearing(Dirty.PRIMING)
    return place(workspace, staging, primed, uid=uid, gid=gid)


def _deliver(tree: Tree, found: Outputs, budget: int, *, fetchable: bool) -> Delivery:
    """Inlines in the order of the walk, as far as the budget goes."""
    inlined: list[Inlined] = []
    skipped = [wire.SkippedFile(name=s.path, reason=s.reason.value) for s in found.skipped]
    not_inlined = 0
    left = budget
    for output in found.files:
        reason: str = INLINE_BUDGET
        if output.size <= left:
            try:
                content = read_bounded(tree, output.path, size=output.size, sha256=output.sha256)
            except ChangedWhileReadError:
                reason = Reason.CHANGED_WHILE_READ.value
            else:
                left -= output.size
                inlined.append(_inline(output, content))
                continue
        href = f"/session/files/{quote(str(output.path))}" if fetchable else None
        skipped.append(
            wire.SkippedFile(name=str(output.path), reason=reason, size=output.size, href=href)
        )
        not_inlined += 1
    if not found.complete:
        # There is no name to give: the walk ended before it came to the rest.
        skipped.append(wire.SkippedFile(name="*", reason=NOT_WALKED))
        not_inlined += 1
    return Delivery(inlined, skipped, found.skipped_total + not_inlined)


def _inline(output: Output, content: bytes) -> Inlined:
    try:
        return Inlined(output, content.decode("utf-8"), "utf8")
    except UnicodeDecodeError:
        return Inlined(output, base64.b64encode(content).decode("ascii"), "base64")
