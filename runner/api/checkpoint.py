"""GET /session/checkpoint: the workspace as a streamed tar.gz."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from aiohttp import web

from runner.api import headers
from runner.api.conditional import matches
from runner.api.contract import (
    CACHE_CONTROL,
    COUNT,
    ETAG,
    EXPECTED,
    IF_NONE_MATCH,
    SESSION,
    SIDECAR_KEY,
    Answer,
    Parameter,
    Said,
    offers,
)
from runner.api.middleware import EVENT
from runner.api.patience import Patience
from runner.checkpoint.handover import Block
from runner.context import RUNNER
from runner.errors import CheckpointTooLarge
from runner.session.saving import Checkpoint

MEDIA_TYPE = "application/x-gtar"
BASE_WANTED = "If-Checkpoint-Base"
KIND, BASED_ON = "X-Checkpoint-Kind", "X-Checkpoint-Base"
ENTRIES, OMITTED = "X-Checkpoint-Entries", "X-Checkpoint-Omitted"
BASES_NAMED_MAX = 16
BASE = Parameter(
    "header",
    BASE_WANTED,
    f"Entity tags of states that the caller has, {BASES_NAMED_MAX} at most: a delta may be sent.",
    raises=(),
)
_CACHED = (ETAG, CACHE_CONTROL, Said("Vary", "What else the answer depends on."))
_SAID = (
    Said(KIND, "Whether it is a delta.", {"type": "string", "enum": ["full", "delta"]}),
    Said(ENTRIES, "Members of the archive, but for its sidecar.", COUNT),
    Said(OMITTED, "Sockets, fifos and devices that are left out.", COUNT),
    Said(headers.EXPANDED_BYTES, "Bytes of the whole state's tar.", COUNT),
    Said(BASED_ON, "Of a delta: the entity tag that it builds on."),
)
#: It is one client's own, changes with every turn, and depends on what that client has.
CACHING = {"Cache-Control": "private, no-cache", "Vary": BASE_WANTED}


@offers(
    Answer(200, "The archive.", media=(MEDIA_TYPE,), headers=_CACHED + _SAID),
    Answer(304, "The caller has this state.", headers=_CACHED),
    parameters=(SESSION, EXPECTED, IF_NONE_MATCH, BASE, SIDECAR_KEY),
    raises=(CheckpointTooLarge,),
)
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
        KIND: "full" if checkpoint.base is None else "delta",
        ENTRIES: str(checkpoint.entries),
        OMITTED: str(checkpoint.omitted),
        headers.EXPANDED_BYTES: str(checkpoint.expanded),
    }
    if checkpoint.base is not None:
        said[BASED_ON] = checkpoint.base
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
