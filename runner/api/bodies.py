"""Request bodies that are taken as they come: every wait for a byte has a bound."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from runner.api.patience import Patience
from runner.context import RUNNER
from runner.errors import BadRequest, BodyTooLarge

READ_BYTES = 256 << 10


async def chunks(request: web.Request) -> AsyncIterator[bytes]:
    """The body to its end; a cut, stalled or endless one is a `BadRequest`."""
    patience = Patience.of(request)
    while chunk := await _read(request, patience):
        yield chunk


async def whole(request: web.Request) -> bytes:
    """A body that fits memory. Raises `BodyTooLarge` as well."""
    max_bytes = request.app[RUNNER].settings.body_max_bytes
    taken = bytearray()
    async for chunk in chunks(request):
        taken += chunk
        if len(taken) > max_bytes:
            raise BodyTooLarge
    return bytes(taken)


async def _read(request: web.Request, patience: Patience) -> bytes:
    try:
        async with patience.waiting():
            return await request.content.read(READ_BYTES)
    except TimeoutError:
        raise BadRequest("the body stopped coming", reason="stalled") from None
    except web.RequestPayloadError:
        raise BadRequest("the body is cut", reason="truncated") from None
