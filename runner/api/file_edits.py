"""PUT and DELETE /session/files/{path}: one file in or out, under the session's lock."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from runner.api import bodies, headers
from runner.api.conditional import matches, names_strongly
from runner.api.contract import (
    ETAG,
    EXPECTED,
    FILE_PATH,
    SESSION,
    Answer,
    Body,
    Parameter,
    offers,
)
from runner.api.middleware import EVENT
from runner.api.responses import json_response
from runner.context import RUNNER, Runner
from runner.errors import (
    BodyTooLarge,
    InvalidPath,
    NotFound,
    PreconditionFailed,
    SessionBusy,
)
from runner.finish import finish
from runner.session.hold import Hold, workspace_of
from runner.session.lifecycle import Operation
from runner.wire import FileInfo
from runner.workspace import editing
from runner.workspace.descent import Parts
from runner.workspace.full import full_disk_is_told
from runner.workspace.paths import SafePath
from runner.workspace.tree import Tree, write_all

_NO_FIT = "the file does not fit"
_CONDITIONS = (
    Parameter(
        "header",
        "If-Match",
        "Entity tags, or `*`: only where the file is one of them.",
        raises=(PreconditionFailed,),
    ),
    Parameter(
        "header",
        "If-None-Match",
        "Entity tags, or `*`: only where the file is none of them, or is not there.",
        raises=(PreconditionFailed,),
    ),
)


@dataclass(frozen=True, slots=True)
class Upload:
    """A body that is whole, in staging."""

    parts: Parts
    sha256: str
    size: int


@offers(
    Answer(200, "It is another file now.", FileInfo, headers=(ETAG,)),
    Answer(201, "It is new.", FileInfo, headers=(ETAG,)),
    parameters=(SESSION, EXPECTED, FILE_PATH, *_CONDITIONS),
    takes=Body(media=("*/*",), says="The file's bytes."),
)
async def put(request: web.Request) -> web.Response:
    """201 or 200 with the file's row. The body is taken before the session is."""
    runner = request.app[RUNNER]
    session_id, expected, path = _asked(request)
    runner.session.refuse_stranger(session_id)
    runner.session.expect(expected)
    headers.refuse_encoding(request)
    if (request.content_length or 0) > runner.settings.file_max_bytes:
        raise BodyTooLarge("the declared size is over the cap", reason="declared")
    async with runner.gate.inside(SessionBusy), _upload(request, runner) as upload:
        runner.session.admit(session_id, expected_incarnation=expected)
        async with runner.session.hold(
            Operation.EDIT, expected_incarnation=expected, provision=runner.provision
        ) as hold:
            edited = await finish(
                asyncio.to_thread(_put, runner, hold, path, upload, _precondition(request))
            )
            hold.done()
    request[EVENT]["bytes"] = upload.size
    row = FileInfo(
        path=str(path),
        size=edited.status.st_size,
        mode=edited.status.st_mode & 0o7777,
        mtime=edited.status.st_mtime_ns,
        sha256=upload.sha256,
    )
    response = json_response(row, status=HTTPStatus.CREATED if edited.created else HTTPStatus.OK)
    response.headers["ETag"] = editing.entity_tag(edited.status)
    return response


@offers(
    Answer(204, "It is gone."),
    parameters=(SESSION, EXPECTED, FILE_PATH, *_CONDITIONS),
    raises=(NotFound,),
)
async def delete(request: web.Request) -> web.Response:
    """204 when the file is gone, 404 when there was none."""
    runner = request.app[RUNNER]
    session_id, expected, path = _asked(request)
    runner.session.require_bound(session_id)
    async with runner.session.hold(
        Operation.EDIT, expected_incarnation=expected, provision=runner.provision
    ) as hold:
        await finish(asyncio.to_thread(_delete, runner, hold, path, _precondition(request)))
        hold.done()
    return web.Response(status=HTTPStatus.NO_CONTENT)


def _asked(request: web.Request) -> tuple[str, str | None, SafePath]:
    return (
        headers.required_session_id(request),
        headers.expected_incarnation(request),
        SafePath.parse(request.match_info["path"], field="path"),
    )


def _put(
    runner: Runner, hold: Hold, path: SafePath, upload: Upload, precondition: editing.Precondition
) -> editing.Edited:
    owner = runner.data.owner
    _refuse_read_only(hold, path)
    with full_disk_is_told(_NO_FIT), workspace_of(runner.data, hold) as workspace:
        if runner.data.quota is not None:
            runner.data.quota.require_room(workspace, more=upload.size)
        edited = editing.put(
            workspace,
            path,
            runner.data.staging,
            upload.parts,
            uid=owner.uid,
            gid=owner.gid,
            precondition=precondition,
        )
    # The client has these bytes: they are no output until a program changes them.
    hold.whole(written={str(path): upload.sha256})
    return edited


def _delete(runner: Runner, hold: Hold, path: SafePath, precondition: editing.Precondition) -> None:
    _refuse_read_only(hold, path)
    name = str(path)

    def forget_delivery() -> None:
        # Before it is gone: a daemon that dies in between then gives it once more, at worst, and
        # never takes the same bytes, made anew, for something that the client has.
        if name in hold.record.surfaced:
            hold.whole(written={name: None})

    with workspace_of(runner.data, hold) as workspace:
        editing.delete(workspace, path, precondition=precondition, before=forget_delivery)
    if name in hold.record.primed:
        hold.whole(primed={k: v for k, v in hold.record.primed.items() if k != name})


def _refuse_read_only(hold: Hold, path: SafePath) -> None:
    primed = hold.record.primed.get(str(path))
    if primed is not None and primed.read_only:
        raise InvalidPath("it is a read-only input", field="path", reason="read_only_input")


def _precondition(request: web.Request) -> editing.Precondition:
    wanted = request.headers.getall("If-Match", [])
    unwanted = request.headers.getall("If-None-Match", [])

    def check(there: os.stat_result | None) -> None:
        etag = None if there is None else editing.entity_tag(there)
        if wanted and not (etag and names_strongly(wanted, etag)):
            raise PreconditionFailed(field="If-Match")
        if unwanted and etag and matches(unwanted, etag):
            raise PreconditionFailed(field="If-None-Match")

    return check


@contextlib.asynccontextmanager
async def _upload(request: web.Request, runner: Runner) -> AsyncIterator[Upload]:
    """The body in a file of staging, which is gone afterwards unless it was moved."""
    staging = runner.data.staging
    parts = (b"put-" + secrets.token_hex(8).encode(),)
    try:
        with full_disk_is_told(_NO_FIT):
            yield await _spool(request, staging, parts, runner.settings.file_max_bytes)
    finally:
        await finish(asyncio.to_thread(staging.remove, parts))


async def _spool(request: web.Request, staging: Tree, parts: Parts, max_bytes: int) -> Upload:
    digest = hashlib.sha256()
    size = 0

    def write(fd: int, chunk: bytes) -> None:
        write_all(fd, chunk)
        digest.update(chunk)

    fd = await finish(asyncio.to_thread(staging.create, parts), dispose=os.close)
    try:
        async for chunk in bodies.chunks(request):
            size += len(chunk)
            if size > max_bytes:
                raise BodyTooLarge("the body is over the cap")
            await finish(asyncio.to_thread(write, fd, chunk))
    finally:
        os.close(fd)
    return Upload(parts, digest.hexdigest(), size)
