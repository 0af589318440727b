"""POST /session/restore: replace the workspace from a checkpoint, or from one and its deltas."""

from __future__ import annotations

from aiohttp import web

from runner.api import headers
from runner.api.archives import MEDIA_TYPES, MULTIPART, Archives
from runner.api.contract import (
    COUNT,
    EXPECTED,
    SESSION,
    SIDECAR_KEY,
    Answer,
    Body,
    Parameter,
    offers,
)
from runner.api.middleware import EVENT
from runner.api.responses import json_response
from runner.context import RUNNER
from runner.errors import (
    CheckpointRefused,
    CheckpointTooLarge,
    UnsupportedMediaType,
)
from runner.wire import Restored, Staged

MORE = "X-Checkpoint-More"
_MORE = Parameter(
    "header",
    MORE,
    "`true`: more archives come, in requests of their own.",
    {"type": "string", "enum": ["true", "false"], "default": "false"},
)
_DECLARED = Parameter(
    "header",
    headers.EXPANDED_BYTES,
    "Bytes of the state's tar, as its checkpoint said: without room for them nothing begins.",
    COUNT,
)


@offers(
    Answer(200, "The archives' tree is the workspace.", Restored),
    Answer(202, "The next archive may come.", Staged),
    parameters=(SESSION, EXPECTED, SIDECAR_KEY, _MORE, _DECLARED),
    takes=Body(
        media=(*MEDIA_TYPES, MULTIPART),
        says="A checkpoint's tar.gz, or as parts a full one and its deltas, in their order.",
        raises=(CheckpointRefused, CheckpointTooLarge, UnsupportedMediaType),
    ),
)
async def post(request: web.Request) -> web.StreamResponse:
    """200 once the archives' tree is the workspace. Any failure after the start has wiped it.

    202 if the client says that more archives come: nothing is the workspace until they have.
    """
    runner = request.app[RUNNER]
    session_id = headers.required_session_id(request)
    expected = headers.expected_incarnation(request)
    key = headers.given_sidecar_key(request)
    more = headers.flag(request, MORE)
    headers.require_media_type(request, *MEDIA_TYPES, MULTIPART)
    declared = headers.count(request, headers.EXPANDED_BYTES)
    limits = runner.checkpointing.limits
    is_single = request.content_type != MULTIPART
    if (declared or 0) > limits.expanded_bytes or (
        is_single and (request.content_length or 0) > limits.compressed_bytes
    ):
        raise CheckpointTooLarge("the declared size is over the cap", reason="declared")
    async with runner.checkpointing.restore(
        session_id,
        expected_incarnation=expected,
        given_key=key,
        more=more,
        declared=declared,
    ) as restoring:
        async for archive in Archives(request):
            restoring.begin_archive()
            async for chunk in archive:
                await restoring.feed(chunk)
            await restoring.end_archive()
        if more:
            return json_response(Staged(archives=restoring.archives), status=202)
        restored = await restoring.commit()
    request[EVENT]["entries"] = restored.entries
    return json_response(
        Restored(entries=restored.entries, bytes=restored.bytes, archives=restored.archives)
    )
