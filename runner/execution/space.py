"""Where one execution works: the session's workspace or a job's own. Files in, files out.

All of it blocks; the executor calls it in threads.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from runner.errors import InsufficientStorage
from runner.execution.outputs import Collected, collected
from runner.execution.request import ReferencedFile
from runner.session.hold import Hold
from runner.session.record import Dirty
from runner.workspace.collecting import collect
from runner.workspace.dataroot import DataRoot, Owner
from runner.workspace.fingerprint import HashCache
from runner.workspace.outputs import Caps
from runner.workspace.placing import Staging, place, stage, survey
from runner.workspace.priming import Input, Primed, plan
from runner.workspace.stopping import NEVER, Stop
from runner.workspace.tree import Tree

_NONE: Mapping[str, int] = MappingProxyType({})


class Space(Protocol):
    """What the executor needs of either kind."""

    @property
    def source(self) -> str:
        """The path that nsjail binds."""

    def present(self) -> bool:
        """Whether the workspace is there."""

    def prime(
        self,
        inputs: Sequence[Input],
        references: Sequence[ReferencedFile],
        stop: Stop = NEVER,
    ) -> None:
        """Puts the inputs in place: all of them, or none and an error.

        `references`: those of them that are objects of the client's.
        """

    def collect(self, caps: Caps, stop: Stop = NEVER) -> Collected:
        """What the client does not have yet, and what it still has of what it sent."""

    def tree(self) -> Tree:
        """The workspace for reading; the caller closes it."""

    @property
    def lasting(self) -> bool:
        """Whether it outlives the execution: its files can still be asked for afterwards."""

    def distrust(self, reason: Dirty) -> None:
        """The workspace must not be used again."""


class JobSpace:
    """The throw-away workspace of an execution without a session."""

    lasting = False

    def __init__(self, data: DataRoot, job: str) -> None:
        self._data = data
        self._job = job
        self._primed: dict[str, Primed] = {}
        self._cache = HashCache()
        self._references: Sequence[ReferencedFile] = ()
        self._sizes = _NONE
        self.source = data.job_source(job)

    def present(self) -> bool:
        """Whether nobody removed it."""
        try:
            self._data.job(self._job).close()
        except FileNotFoundError:
            return False
        return True

    def prime(
        self,
        inputs: Sequence[Input],
        references: Sequence[ReferencedFile],
        stop: Stop = NEVER,
    ) -> None:
        """Into an empty directory: nothing can be in the way, and a failure removes all of it."""
        owner = self._data.owner
        with (
            self._data.job(self._job) as tree,
            _staged(self._data, tree, inputs, {}, {}, HashCache(), stop) as staging,
        ):
            staging.release()
            placed = place(tree, staging, {}, uid=owner.uid, gid=owner.gid)
        self._primed = dict(placed.primed)
        self._references = references
        self._sizes = _sizes(inputs)

    def collect(self, caps: Caps, stop: Stop = NEVER) -> Collected:
        """All that the program made."""
        return _collect(
            self, self._primed, {}, self._references, self._sizes, self._cache, caps, stop
        )

    def tree(self) -> Tree:
        """The job's directory."""
        return self._data.job(self._job)

    def distrust(self, reason: Dirty) -> None:
        """It is removed in any case."""


class SessionSpace:
    """The session's workspace, and the record that has to tell the truth about it."""

    lasting = True

    def __init__(self, data: DataRoot, hold: Hold, cache: HashCache) -> None:
        self._data = data
        self._hold = hold
        self._cache = cache
        self._references: Sequence[ReferencedFile] = ()
        self._sizes = _NONE
        self.source = data.workspace_source()

    def present(self) -> bool:
        """Whether the workspace is there."""
        return self._data.workspace_present()

    def prime(
        self,
        inputs: Sequence[Input],
        references: Sequence[ReferencedFile],
        stop: Stop = NEVER,
    ) -> None:
        """The session is dirty exactly while files are being moved into place."""
        try:
            self._prime(inputs, stop)
        except InsufficientStorage:
            # On a full disk the program that makes room has to be put there first.
            if not self._data.reserve.give_up():
                raise
            self._prime(inputs, stop)
        self._references = references
        self._sizes = _sizes(inputs)

    def _prime(self, inputs: Sequence[Input], stop: Stop) -> None:
        record = self._hold.record
        with (
            self._data.workspace() as tree,
            _staged(
                self._data, tree, inputs, record.primed, record.surfaced, self._cache, stop
            ) as staging,
        ):
            staging.release()
            owner = self._data.owner
            _let_owner_in(tree, owner)
            # Between the two notes nothing is done but what has to be: a daemon that dies there
            # leaves a session that is dirty.
            if staging.ready:
                self._hold.tearing(Dirty.PRIMING)
            placed = place(tree, staging, record.primed, uid=owner.uid, gid=owner.gid)
            # A file that the client has just written is no output of ours that it has.
            self._hold.whole(primed=placed.primed, written=dict.fromkeys(placed.written))

    def collect(self, caps: Caps, stop: Stop = NEVER) -> Collected:
        """What is new since the last delivery."""
        record = self._hold.record
        return _collect(
            self,
            record.primed,
            record.surfaced,
            self._references,
            self._sizes,
            self._cache,
            caps,
            stop,
        )

    def tree(self) -> Tree:
        """The workspace."""
        return self._data.workspace()

    def distrust(self, reason: Dirty) -> None:
        """Dirty from now on."""
        self._hold.tearing(reason)


def _let_owner_in(workspace: Tree, owner: Owner) -> None:
    """A program may have shut itself out, and no later one could undo it: none would start."""
    mode = stat.S_IMODE(workspace.stat().st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        workspace.give_root(uid=owner.uid, gid=owner.gid, mode=mode | stat.S_IRWXU)


def _staged(
    data: DataRoot,
    workspace: Tree,
    inputs: Sequence[Input],
    primed: Mapping[str, Primed],
    surfaced: Mapping[str, str],
    cache: HashCache,
    stop: Stop,
) -> Staging:
    """The inputs, ready to be moved into place. The workspace has not been touched."""
    present = survey(workspace, inputs, primed, cache, stop)
    steps = plan(inputs, primed, present, surfaced=surfaced)
    return stage(data.staging, steps, uid=data.owner.uid, gid=data.owner.gid, stop=stop)


def _collect(
    space: Space,
    primed: Mapping[str, Primed],
    surfaced: Mapping[str, str],
    references: Sequence[ReferencedFile],
    sizes: Mapping[str, int],
    cache: HashCache,
    caps: Caps,
    stop: Stop,
) -> Collected:
    sent = frozenset(str(each.path) for each in references)
    with space.tree() as tree:
        found = collect(
            tree, primed, surfaced, cache=cache, caps=caps, sent=sent, sizes=sizes, stop=stop
        )
    return collected(found, primed, surfaced, references, lasting=space.lasting)


def _sizes(inputs: Sequence[Input]) -> Mapping[str, int]:
    return {str(each.path): each.source.size for each in inputs}
