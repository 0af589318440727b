"""POST /session/restore: replace the workspace from a checkpoint, or from one and its deltas."""

from __future__ import annotations

from aiohttp import web

from runner.api import headers
from runner.api.archives import MEDIA_TYPES, MULTIPART, Archives
from runner.api.middleware import EVENT
from runner.api.responses import json_response
from runner.context import RUNNER
from runner.errors import CheckpointTooLarge
from runner.wire import Restored, Staged

MORE = "X-Checkpoint-More"


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
