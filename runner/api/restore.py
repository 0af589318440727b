"""POST /session/restore: replace the workspace from a checkpoint."""

from __future__ import annotations

import asyncio

from aiohttp import web

from runner.api import headers
from runner.api.middleware import EVENT
from runner.api.responses import json_response
from runner.context import RUNNER
from runner.errors import CheckpointCorrupt, CheckpointTooLarge
from runner.wire import Restored

MEDIA_TYPES = (
    "application/x-gtar",
    "application/gzip",
    "application/x-gzip",
    "application/octet-stream",
)
#: Seconds in which at least one byte of the archive has to come, and in which all of it has to: it
#: holds the session.
IDLE_TIMEOUT = 30.0
TOTAL_TIMEOUT = 3600.0
READ_BYTES = 256 << 10


async def post(request: web.Request) -> web.StreamResponse:
    """200 once the archive's tree is the workspace. Any failure after the start has wiped it."""
    runner = request.app[RUNNER]
    session_id = headers.required_session_id(request)
    expected = headers.expected_incarnation(request)
    key = headers.given_sidecar_key(request)
    headers.require_media_type(request, *MEDIA_TYPES)
    cap = runner.checkpointing.limits.compressed_bytes
    if request.content_length is not None and request.content_length > cap:
        raise CheckpointTooLarge("the declared size is over the cap", reason="declared")
    async with runner.checkpointing.restore(
        session_id, expected_incarnation=expected, given_key=key
    ) as restoring:
        deadline = asyncio.get_running_loop().time() + TOTAL_TIMEOUT
        while chunk := await _read(request, deadline):
            await restoring.feed(chunk)
        restored = await restoring.commit()
    request[EVENT]["entries"] = restored.entries
    return json_response(Restored(entries=restored.entries, bytes=restored.bytes))


async def _read(request: web.Request, deadline: float) -> bytes:
    """The next bytes of the body, empty at its end. A body that is cut or stalls: corrupt."""
    try:
        async with asyncio.timeout_at(deadline), asyncio.timeout(IDLE_TIMEOUT):
            return await request.content.read(READ_BYTES)
    except TimeoutError:
        raise CheckpointCorrupt("the body stopped coming", reason="stalled") from None
    except web.RequestPayloadError:
        raise CheckpointCorrupt("the body is cut", reason="truncated") from None
