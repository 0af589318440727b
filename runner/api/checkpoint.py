"""GET /session/checkpoint: the workspace as a streamed tar.gz."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable

from aiohttp import web

from runner.api import headers
from runner.api.conditional import matches
from runner.api.middleware import EVENT
from runner.checkpoint.handover import Block
from runner.context import RUNNER
from runner.session.saving import Checkpoint

MEDIA_TYPE = "application/x-gtar"
#: Seconds in which the client has to take a chunk, and in which it has to take all of them: the
#: session is held until it has.
IDLE_TIMEOUT = 30.0
TOTAL_TIMEOUT = 3600.0
BASE_WANTED = "If-Checkpoint-Base"
BASES_NAMED_MAX = 16
#: It is one client's own, changes with every turn, and depends on what that client has.
CACHING = {"Cache-Control": "private, no-cache", "Vary": BASE_WANTED}


async def get(request: web.Request) -> web.StreamResponse:
    """200 with the archive, full or a delta, 304 if the caller has it.

    A stream that fails is cut, never ended.
    """
    runner = request.app[RUNNER]
    session_id = headers.required_session_id(request)
    async with runner.checkpointing.save(
        session_id,
        expected_incarnation=headers.expected_incarnation(request),
        given_key=headers.given_sidecar_key(request),
        base_tags=headers.entity_tags(request, BASE_WANTED)[:BASES_NAMED_MAX],
    ) as checkpoint:
        request[EVENT]["entries"] = checkpoint.entries
        if matches(request.headers.getall("If-None-Match", []), checkpoint.etag):
            return web.Response(status=304, headers={"ETag": checkpoint.etag} | CACHING)
        async with contextlib.aclosing(checkpoint.stream()) as chunks:
            return await _stream(request, checkpoint, chunks)


async def _stream(
    request: web.Request, checkpoint: Checkpoint, chunks: AsyncGenerator[Block, None]
) -> web.StreamResponse:
    # The first chunk comes before the status: what fails until then is still an error with a name.
    first = await anext(chunks)
    said = {
        "Content-Type": MEDIA_TYPE,
        "ETag": checkpoint.etag,
        "X-Checkpoint-Kind": "full" if checkpoint.base is None else "delta",
        "X-Checkpoint-Entries": str(checkpoint.entries),
        "X-Checkpoint-Omitted": str(checkpoint.omitted),
    }
    if checkpoint.base is not None:
        said["X-Checkpoint-Base"] = checkpoint.base
    response = web.StreamResponse(headers=said | CACHING)
    await response.prepare(request)
    sent = 0
    deadline = asyncio.get_running_loop().time() + TOTAL_TIMEOUT
    try:
        await _taken(response.write(first), deadline)
        sent += len(first)
        async for chunk in chunks:
            await _taken(response.write(chunk), deadline)
            sent += len(chunk)
        await _taken(response.write_eof(), deadline)
    except BaseException:
        # Without the last chunk of HTTP's own framing the client knows that this is not all of it.
        if request.transport is not None:
            request.transport.abort()
        raise
    finally:
        request[EVENT]["bytes"] = sent
    return response


async def _taken(writing: Awaitable[None], deadline: float) -> None:
    """Waits until the client has made room. One that does not is as good as gone."""
    try:
        async with asyncio.timeout_at(deadline), asyncio.timeout(IDLE_TIMEOUT):
            await writing
    except TimeoutError:
        raise ConnectionError("the client stopped reading") from None
