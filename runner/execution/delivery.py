"""Delivering outputs: uploaded where there is a file server, else in the result up to a budget.

Only what was delivered is in `files`, and only that counts as surfaced. Everything else is named
in `skipped` with a reason and offered again with the next result.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import msgspec

from runner import wire
from runner.execution.outputs import (
    NOT_WALKED,
    Collected,
    Deliverable,
    merged,
    result_file,
    skipped_file,
)
from runner.execution.request import Plan, new_id
from runner.execution.space import Space
from runner.fileserver.client import READ_BYTES, FileServer, ObjectName
from runner.fileserver.retry import TransferFailed
from runner.finish import finish
from runner.longwork import SHORT_BYTES, SHORT_ENTRIES, Lanes
from runner.workspace.fingerprint import ChangedWhileReadError
from runner.workspace.outputs import Caps, Reason, read_bounded

#: `skipped` reason of an upload that failed, with the transfer's failure behind it.
UPLOAD = "upload_"
UPLOADS_AT_ONCE = 8
COMPARED_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the result says of files; `surfaced`: path → hash of what the client then has."""

    files: list[wire.ResultFile] = field(default_factory=list)
    skipped: list[wire.SkippedFile] = field(default_factory=list)
    skipped_total: int = 0
    surfaced: dict[str, str] = field(default_factory=dict)


NOTHING = Delivery()
NOTHING_WALKED = Delivery(skipped=[wire.SkippedFile(name="*", reason=NOT_WALKED)], skipped_total=1)


class Outbox:
    """Where outputs go."""

    def __init__(self, server: FileServer | None, *, caps: Caps, lanes: Lanes) -> None:
        """`caps` bound what is inlined where there is no server."""
        self._server = server
        self._caps = caps
        self._short = replace(caps, read_bytes=SHORT_BYTES, entries=SHORT_ENTRIES)
        self._lanes = lanes

    async def deliver(self, plan: Plan, space: Space) -> Delivery:
        """Collects what the client does not have yet, and delivers what it can of it."""
        found = await self._collect(space)
        if self._server is None:
            rows = await finish(asyncio.to_thread(_inline_all, plan, space, found))
        else:
            rows = await _upload_all(self._server, plan, space, found)
        files = [row for row in rows if isinstance(row, wire.ResultFile)]
        failed = [row for row in rows if isinstance(row, wire.SkippedFile)]
        return Delivery(
            files=merged(files, found.inherited),
            skipped=[*found.skipped, *failed],
            skipped_total=found.skipped_total + len(failed),
            surfaced=found.surfaced | {row.name: row.sha256 for row in files if row.sha256},
        )

    async def _collect(self, space: Space) -> Collected:
        """Nearly always it is short. What is not waits for its like, and for nobody else."""
        found: Collected = await finish(asyncio.to_thread(space.collect, self._short))
        if not found.is_cut:
            return found
        lane = self._lanes.of(lasting=space.lasting)
        return await lane.run(lambda stop: space.collect(self._caps, stop))


def inline_caps(*, inline_bytes: int, input_bytes: int) -> Caps:
    """Without a file server most of what is large is named and not read.

    What is still read is what the client may have: pushed inputs, at most `input_bytes` of them in
    one request, and what it has had from here.
    """
    return Caps(read_bytes=max(COMPARED_BYTES, input_bytes), inline_bytes=inline_bytes)


_Row = wire.ResultFile | wire.SkippedFile


def _row(plan: Plan, deliverable: Deliverable) -> wire.ResultFile:
    return result_file(deliverable, object_id=new_id(), storage_session_id=plan.output_session_id)


def _skipped(space: Space, deliverable: Deliverable, reason: str) -> wire.SkippedFile:
    fetchable = space.lasting and not deliverable.is_marker
    return skipped_file(deliverable.name, reason, deliverable.output.size, fetchable=fetchable)


def _inline_all(plan: Plan, space: Space, found: Collected) -> list[_Row]:
    """Blocks. The walk has counted them: they are within the budget."""
    rows: list[_Row] = []
    with space.tree() as tree:
        for each in found.deliverables:
            output = each.output
            content = b""
            if not each.is_marker:
                try:
                    content = read_bounded(
                        tree, output.path, size=output.size, sha256=output.sha256
                    )
                except ChangedWhileReadError:
                    rows.append(_skipped(space, each, Reason.CHANGED_WHILE_READ.value))
                    continue
            rows.append(_inline(_row(plan, each), content))
    return rows


def _inline(row: wire.ResultFile, content: bytes) -> wire.ResultFile:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = base64.b64encode(content).decode("ascii")
        return msgspec.structs.replace(row, content=text, encoding="base64")
    return msgspec.structs.replace(row, content=text, encoding="utf8")


async def _upload_all(server: FileServer, plan: Plan, space: Space, found: Collected) -> list[_Row]:
    at_once = asyncio.Semaphore(UPLOADS_AT_ONCE)

    async def upload(deliverable: Deliverable) -> _Row:
        row = _row(plan, deliverable)
        name = ObjectName(row.storage_session_id, row.id, plan.egress_grant)
        async with at_once:
            try:
                await _upload(server, name, space, deliverable)
            except TransferFailed as failed:
                return _skipped(space, deliverable, UPLOAD + failed.failure.value)
            except ChangedWhileReadError:
                return _skipped(space, deliverable, Reason.CHANGED_WHILE_READ.value)
        return row

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(upload(each)) for each in found.deliverables]
    return [task.result() for task in tasks]


async def _upload(
    server: FileServer, name: ObjectName, space: Space, deliverable: Deliverable
) -> None:
    output = deliverable.output
    fd = -1
    if not deliverable.is_marker:
        fd = await finish(asyncio.to_thread(_open, space, deliverable), dispose=os.close)
    try:
        await server.upload(
            name,
            lambda: _body(fd, size=output.size, sha256=output.sha256),
            size=output.size,
            filename=deliverable.name,
        )
    finally:
        if fd >= 0:
            os.close(fd)


def _open(space: Space, deliverable: Deliverable) -> int:
    try:
        with space.tree() as tree:
            return tree.open_file(deliverable.output.path.parts)
    except OSError as error:
        raise ChangedWhileReadError from error


async def _body(fd: int, *, size: int, sha256: str) -> AsyncIterator[bytes]:
    """The file's bytes; the last of them only if all are those that were collected."""
    digest = hashlib.sha256()
    # Its own, because the HTTP client may still be reading when its caller has left.
    own_fd = os.dup(fd)

    def read(offset: int) -> bytes:
        chunk = os.pread(own_fd, min(READ_BYTES, size - offset), offset)
        digest.update(chunk)
        return chunk

    try:
        offset, held = 0, b""
        while offset < size:
            chunk = await finish(asyncio.to_thread(read, offset))
            if not chunk:
                raise ChangedWhileReadError
            if held:
                yield held
            held = chunk
            offset += len(chunk)
        if digest.hexdigest() != sha256:
            raise ChangedWhileReadError
        yield held
    finally:
        os.close(own_fd)
