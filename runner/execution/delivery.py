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
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec

from runner import wire
from runner.execution.outputs import NOT_WALKED, Collected, Deliverable, merged, result_file
from runner.execution.request import Plan, new_id
from runner.execution.space import Space
from runner.fileserver.client import READ_BYTES, FileServer, ObjectName
from runner.fileserver.retry import TransferFailed
from runner.finish import finish
from runner.workspace.fingerprint import ChangedWhileReadError
from runner.workspace.outputs import Reason, read_bounded

#: `skipped` reasons; an upload that failed says `upload_` and the transfer's failure.
INLINE_BUDGET = "inline_budget"
UPLOAD = "upload_"
UPLOADS_AT_ONCE = 8


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

    def __init__(self, server: FileServer | None, *, inline_max_bytes: int) -> None:
        self._server = server
        self._inline_max_bytes = inline_max_bytes

    async def deliver(self, plan: Plan, space: Space) -> Delivery:
        """Collects what the client does not have yet, and delivers what it can of it."""
        found: Collected = await finish(asyncio.to_thread(space.collect))
        if self._server is None:
            budget = self._inline_max_bytes
            rows = await finish(asyncio.to_thread(_inline_all, plan, space, found, budget))
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


_Row = wire.ResultFile | wire.SkippedFile


def _row(plan: Plan, deliverable: Deliverable) -> wire.ResultFile:
    return result_file(deliverable, object_id=new_id(), storage_session_id=plan.output_session_id)


def _skipped(space: Space, deliverable: Deliverable, reason: str) -> wire.SkippedFile:
    fetchable = space.lasting and not deliverable.is_marker
    return wire.SkippedFile(
        name=deliverable.name,
        reason=reason,
        size=deliverable.output.size,
        href=f"/session/files/{quote(deliverable.name)}" if fetchable else None,
    )


def _inline_all(plan: Plan, space: Space, found: Collected, budget: int) -> list[_Row]:
    """Inlines in the order of the walk, as far as the budget goes. Blocks."""
    rows: list[_Row] = []
    left = budget
    with space.tree() as tree:
        for each in found.deliverables:
            output = each.output
            if output.size > left:
                rows.append(_skipped(space, each, INLINE_BUDGET))
                continue
            content = b""
            if not each.is_marker:
                try:
                    content = read_bounded(
                        tree, output.path, size=output.size, sha256=output.sha256
                    )
                except ChangedWhileReadError:
                    rows.append(_skipped(space, each, Reason.CHANGED_WHILE_READ.value))
                    continue
            left -= output.size
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
