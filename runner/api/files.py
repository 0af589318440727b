"""GET /session/files and GET /session/files/{path}: list and download, without following a link."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote

from aiohttp import web

from runner.api import headers
from runner.api.conditional import matches
from runner.api.contract import (
    ETAG,
    EXPECTED,
    FILE_PATH,
    FLAG,
    IF_NONE_MATCH,
    SESSION,
    Answer,
    Parameter,
    Said,
    offers,
)
from runner.api.patience import Patience
from runner.api.ranges import wanted_bytes
from runner.api.responses import json_response
from runner.context import RUNNER, Runner
from runner.errors import BadRequest, NotFound, RangeNotSatisfiable
from runner.finish import finish
from runner.session.ledger import Ledger
from runner.wire import FileInfo, FileList
from runner.workspace.editing import entity_tag
from runner.workspace.fingerprint import ChangedWhileReadError, hash_file
from runner.workspace.paths import SafePath
from runner.workspace.stopping import NEVER, Stop
from runner.workspace.tree import Entry, Kind, TooManyEntriesError, Tree

LISTED_MAX = 20_000
#: Never rendered by a browser on this origin, whatever the program called it.
MEDIA_TYPE = "application/octet-stream"
#: Of one listing with hashes.
LIST_HASH_BYTES = 4 << 30
CHUNK = 256 << 10
HASHED = Parameter("query", "sha256", "`1`: with the files' hashes.", FLAG)
RANGE = Parameter(
    "header", "Range", "One range of bytes; several are ignored.", raises=(RangeNotSatisfiable,)
)
IF_RANGE = Parameter(
    "header",
    "If-Range",
    "The entity tag that `Range` is of: all bytes where it is another.",
    raises=(),
)
_SAID = (
    ETAG,
    Said("Accept-Ranges", "`bytes`."),
    Said("Content-Disposition", "The file's name, as an attachment's."),
)


@offers(
    Answer(200, "The files.", FileList),
    parameters=(SESSION, EXPECTED, HASHED),
    raises=(NotFound,),
)
async def list_files(request: web.Request) -> web.Response:
    """Every regular file that has a name JSON can carry, sorted; `?sha256=1` hashes them too."""
    runner = _authorized(request)
    hashed = request.query.get("sha256", "0")
    if hashed not in ("0", "1"):
        raise BadRequest("it is 0 or 1", field="sha256")
    if hashed == "1":
        listed = await runner.lanes.listings.run(lambda stop: _list(runner, LIST_HASH_BYTES, stop))
    else:
        listed = await finish(asyncio.to_thread(_list, runner, -1))
    return json_response(listed)


@offers(
    Answer(200, "The file.", media=(MEDIA_TYPE,), headers=_SAID),
    Answer(
        206,
        "The range.",
        media=(MEDIA_TYPE,),
        headers=(*_SAID, Said("Content-Range", "Which bytes, and of how many.")),
    ),
    Answer(304, "The caller has it.", headers=(ETAG,)),
    parameters=(SESSION, EXPECTED, FILE_PATH, IF_NONE_MATCH, RANGE, IF_RANGE),
    raises=(NotFound,),
)
async def download(request: web.Request) -> web.StreamResponse:
    """The bytes of one regular file; `Range`, `ETag` and `If-None-Match` as RFC 9110 has them."""
    runner = _authorized(request)
    path = SafePath.parse(request.match_info["path"], field="path")
    ledger = runner.session.ledger
    epoch = ledger.epoch
    opened = await finish(asyncio.to_thread(_open, runner, path), dispose=Opened.close)
    try:
        if matches(request.headers.getall("If-None-Match", []), opened.etag):
            return web.Response(status=304, headers={"ETag": opened.etag})
        response, sha256 = await _send(request, opened, path)
        if sha256 is not None:
            _note(ledger, path, sha256, epoch=epoch)
        return response
    finally:
        opened.close()


def _note(ledger: Ledger, path: SafePath, sha256: str, *, epoch: int) -> None:
    """The client has the whole file now, as if a result had brought it.

    Of an input that is as it was sent there is nothing to note: it is no output.
    """
    primed = ledger.record.primed.get(str(path)) if ledger.record else None
    if primed is None or primed.sha256 != sha256:
        ledger.note_surfaced({str(path): sha256}, epoch=epoch)


def _authorized(request: web.Request) -> Runner:
    runner = request.app[RUNNER]
    runner.session.require_bound(headers.required_session_id(request))
    runner.session.expect(headers.expected_incarnation(request))
    runner.session.refuse_dirty()
    return runner


def _workspace(runner: Runner) -> Tree:
    try:
        return runner.data.workspace()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound("the session has no files yet") from None


def _list(runner: Runner, hash_bytes: int, stop: Stop = NEVER) -> FileList:
    """`hash_bytes`: of files that may be read for their hashes; below 0: none is."""
    listed: list[FileInfo] = []
    truncated = False
    with _workspace(runner) as tree:
        try:
            for entry in tree.walk(max_entries=LISTED_MAX):
                if entry.kind is not Kind.FILE:
                    continue
                try:
                    path = b"/".join(entry.parts).decode("utf-8")
                except UnicodeDecodeError:
                    continue
                stop.check()
                sha256 = None
                if entry.stat.st_size <= hash_bytes:
                    sha256 = _hash(entry, stop)
                    hash_bytes -= entry.stat.st_size
                listed.append(
                    FileInfo(
                        path=path,
                        size=entry.stat.st_size,
                        mode=stat.S_IMODE(entry.stat.st_mode),
                        mtime=entry.stat.st_mtime_ns,
                        sha256=sha256,
                    )
                )
        except TooManyEntriesError:
            truncated = True
    return FileList(files=listed, truncated=truncated)


def _hash(entry: Entry, stop: Stop) -> str | None:
    """Read anew: a program may be running, and then a remembered hash proves nothing."""
    try:
        fd = entry.open()
    except OSError:
        return None
    try:
        return hash_file(fd, stop=stop).sha256
    except (OSError, ChangedWhileReadError):
        return None
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Opened:
    """A regular file, open for reading."""

    fd: int
    size: int
    etag: str

    def close(self) -> None:
        """Once."""
        os.close(self.fd)


def _open(runner: Runner, path: SafePath) -> Opened:
    with _workspace(runner) as tree:
        try:
            fd = tree.open_file(path.parts)
        except OSError:
            # Not there, a link, a directory, a fifo: for a download it is all the same.
            raise NotFound("there is no regular file of that name") from None
    status = os.fstat(fd)
    return Opened(fd, status.st_size, entity_tag(status))


async def _send(
    request: web.Request, opened: Opened, path: SafePath
) -> tuple[web.StreamResponse, str | None]:
    """Also the hash (hex) of what was sent, if it was the whole file."""
    part = _range(request, opened)
    start, stop = part or (0, opened.size)
    response = web.StreamResponse(
        status=HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK,
        headers={
            "Content-Type": MEDIA_TYPE,
            "X-Content-Type-Options": "nosniff",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.name, safe='')}",
            "Accept-Ranges": "bytes",
            "ETag": opened.etag,
        },
    )
    if part:
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{opened.size}"
    response.content_length = stop - start
    await response.prepare(request)
    digest = hashlib.sha256()
    patience = Patience.of(request)
    offset = start
    while offset < stop:
        size = min(CHUNK, stop - offset)
        # To its end: the descriptor is closed as soon as this is left.
        chunk = await finish(asyncio.to_thread(_read, opened.fd, size, offset, digest))
        if not chunk:
            # It shrank under the read. The promised length does not come: the client sees a cut.
            if request.transport is not None:
                request.transport.abort()
            break
        async with patience.writing():
            await response.write(chunk)
        offset += len(chunk)
    async with patience.writing():
        await response.write_eof()
    return response, digest.hexdigest() if part is None and offset == stop else None


def _read(fd: int, size: int, offset: int, digest: hashlib._Hash) -> bytes:
    chunk = os.pread(fd, size, offset)
    digest.update(chunk)
    return chunk


def _range(request: web.Request, opened: Opened) -> tuple[int, int] | None:
    """The bytes asked for; None for all of them, also where the file is another by now."""
    if request.headers.get("If-Range", opened.etag) != opened.etag:
        return None
    return wanted_bytes(request.headers.get("Range"), opened.size)
