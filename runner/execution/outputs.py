"""From what a collection found to what the wire says of files. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from runner import wire
from runner.errors import InvalidPath
from runner.execution.request import ReferencedFile
from runner.inputs.markers import DIRKEEP
from runner.workspace.outputs import Output, Outputs, Reason, Status
from runner.workspace.paths import SafePath
from runner.workspace.priming import Primed

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
#: `skipped` reason; those of the walk are in `workspace.outputs.Reason`.
NOT_WALKED = "not_walked"


@dataclass(frozen=True, slots=True)
class Deliverable:
    """Something the client does not have. A marker has no file of its own in the workspace."""

    output: Output
    is_marker: bool = False

    @property
    def name(self) -> str:
        """What the client calls it."""
        return str(self.output.path)


@dataclass(frozen=True, slots=True)
class Collected:
    """What is to be delivered, sorted, and what the client has or does not get.

    `surfaced`: path → hash of what it has once it has read the result.
    """

    deliverables: list[Deliverable]
    inherited: list[wire.ResultFile] = field(default_factory=list)
    surfaced: dict[str, str] = field(default_factory=dict)
    skipped: list[wire.SkippedFile] = field(default_factory=list)
    skipped_total: int = 0
    #: The caps on looking and reading were reached.
    is_cut: bool = False


def collected(
    found: Outputs,
    primed: Mapping[str, Primed],
    surfaced: Mapping[str, str],
    references: Sequence[ReferencedFile],
    *,
    lasting: bool = False,
) -> Collected:
    """Sorts what was found. `references` are the inputs by reference of this very request.

    `lasting`: the workspace can be asked for what does not come with the result.
    """
    markers = [
        Deliverable(each, is_marker=True)
        for each in _markers(found.empty_dirs)
        if surfaced.get(str(each.path)) != EMPTY_SHA256
    ]
    deliverables = [*(Deliverable(each) for each in found.files), *markers]
    skipped = [
        skipped_file(
            each.path, each.reason.value, each.size, fetchable=lasting and each.size is not None
        )
        for each in found.skipped
    ]
    skipped_total = found.skipped_total
    if not found.complete:
        # There is no name to give: the walk ended before it came to the rest.
        skipped.append(wire.SkippedFile(name="*", reason=NOT_WALKED))
        skipped_total += 1
    kept = _kept(found, references)
    return Collected(
        deliverables=sorted(deliverables, key=lambda each: each.output.path),
        inherited=[_inherited(each) for each in kept],
        surfaced={
            path: primed[path].sha256
            for path in map(str, found.unchanged)
            if path in surfaced and path in primed
        },
        skipped=skipped,
        skipped_total=skipped_total,
        is_cut=found.is_cut,
    )


def merged(
    delivered: Sequence[wire.ResultFile], inherited: Sequence[wire.ResultFile]
) -> list[wire.ResultFile]:
    """One list, in the order of the names' components."""
    return sorted([*delivered, *inherited], key=lambda each: each.name.split("/"))


def skipped_file(name: str, reason: str, size: int | None, *, fetchable: bool) -> wire.SkippedFile:
    """A row of what does not come, and where it can be had if it can."""
    href = f"/session/files/{quote(name)}" if fetchable else None
    return wire.SkippedFile(name=name, reason=reason, size=size, href=href)


def result_file(
    deliverable: Deliverable, *, object_id: str, storage_session_id: str
) -> wire.ResultFile:
    """A new file's row, without its bytes."""
    output = deliverable.output
    return wire.ResultFile(
        id=object_id,
        name=deliverable.name,
        storage_session_id=storage_session_id,
        size=output.size,
        mode=output.mode,
        sha256=output.sha256,
        modified_from=_origin(output.modified_from),
    )


def _markers(empty_dirs: Sequence[SafePath]) -> list[Output]:
    markers = []
    for directory in empty_dirs:
        try:
            path = SafePath.parse(f"{directory}/{DIRKEEP}")
        except InvalidPath:
            # Too long or too deep with it: the client could not send it back.
            continue
        markers.append(Output(path, 0, 0o644, EMPTY_SHA256, Status.NEW))
    return markers


def _kept(found: Outputs, references: Sequence[ReferencedFile]) -> list[ReferencedFile]:
    """The request's own inputs that still stand for what the client has.

    An edit of a read-only one is dropped, so the input it was made from stands as well.
    """
    standing = {str(path) for path in found.unchanged} | {
        each.path for each in found.skipped if each.reason is Reason.READ_ONLY_INPUT
    }
    return [each for each in references if str(each.path) in standing]


def _inherited(file: ReferencedFile) -> wire.ResultFile:
    return wire.ResultFile(
        id=file.id,
        name=str(file.path),
        storage_session_id=file.storage_session_id,
        inherited=True,
        entity_id=file.entity_id,
    )


def _origin(primed: Primed | None) -> wire.ObjectReference | None:
    if primed is None or primed.input_id is None or primed.storage_session_id is None:
        return None
    return wire.ObjectReference(id=primed.input_id, storage_session_id=primed.storage_session_id)
