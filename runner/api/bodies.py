"""Request bodies that are taken as they come: every wait for a byte has a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from runner.errors import BadRequest

#: Seconds in which at least one byte has to come.
IDLE_TIMEOUT = 30.0
READ_BYTES = 256 << 10


async def chunks(request: web.Request, *, total_timeout: float) -> AsyncIterator[bytes]:
    """The body to its end; a cut, stalled or endless one is a `BadRequest`.

    `total_timeout`: seconds in which all of it has to come, whatever is done with it meanwhile.
    """
    deadline = asyncio.get_running_loop().time() + total_timeout
    while chunk := await _read(request, deadline):
        yield chunk


async def _read(request: web.Request, deadline: float) -> bytes:
    try:
        async with asyncio.timeout_at(deadline), asyncio.timeout(IDLE_TIMEOUT):
            return await request.content.read(READ_BYTES)
    except TimeoutError:
        raise BadRequest("the body stopped coming", reason="stalled") from None
    except web.RequestPayloadError:
        raise BadRequest("the body is cut", reason="truncated") from None
