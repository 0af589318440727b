"""GET /session/checkpoint: the workspace as a streamed tar.gz."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from aiohttp import web

from runner.api import headers
from runner.api.conditional import matches
from runner.api.middleware import EVENT
from runner.api.patience import Patience
from runner.checkpoint.handover import Block
from runner.context import RUNNER
from runner.session.saving import Checkpoint

MEDIA_TYPE = "application/x-gtar"
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
        headers.EXPANDED_BYTES: str(checkpoint.expanded),
    }
    if checkpoint.base is not None:
        said["X-Checkpoint-Base"] = checkpoint.base
    response = web.StreamResponse(headers=said | CACHING)
    await response.prepare(request)
    sent = 0
    # The session is held until the client has taken all of it.
    patience = Patience.of(request)
    try:
        async with patience.writing():
            await response.write(first)
        sent += len(first)
        async for chunk in chunks:
            async with patience.writing():
                await response.write(chunk)
            sent += len(chunk)
        async with patience.writing():
            await response.write_eof()
    except BaseException:
        # Without the last chunk of HTTP's own framing the client knows that this is not all of it.
        if request.transport is not None:
            request.transport.abort()
        raise
    finally:
        request[EVENT]["bytes"] = sent
    return response
