"""POST /session/inputs/probe and POST /session/inputs: input bytes, pushed ahead of an execute."""

from __future__ import annotations

import asyncio

from aiohttp import web

from runner.api import bodies, headers
from runner.api.archives import MEDIA_TYPES
from runner.api.contract import COUNT, Answer, Body, Parameter, offers
from runner.api.middleware import EVENT
from runner.api.responses import json_response
from runner.context import RUNNER
from runner.errors import BadRequest, BodyTooLarge, InsufficientStorage, Overloaded
from runner.inputs.push import Push
from runner.wire import InputReference, Probed, ProbeRequest, Pushed

EXPANDED_BYTES = "X-CodeAPI-Input-Expanded-Bytes"
DECLARED = Parameter("header", EXPANDED_BYTES, "Bytes of all members together.", COUNT)
#: Each has a thread and its bytes in staging.
PUSHES_AT_ONCE = 16

_UNDER_WAY: web.AppKey[asyncio.Semaphore] = web.AppKey("pushes", asyncio.Semaphore)


def prepare(app: web.Application) -> None:
    """What the pushes of one application share."""
    app[_UNDER_WAY] = asyncio.Semaphore(PUSHES_AT_ONCE)


@offers(
    Answer(200, "Those that are not here.", Probed),
    takes=Body(ProbeRequest),
    raises=(Overloaded,),
)
async def probe(request: web.Request) -> web.Response:
    """Which of the named inputs are not here, with their bytes verified."""
    asked = await headers.json_body(request, ProbeRequest)
    keys = [ref.cache_key for ref in asked.refs]
    if len(set(keys)) < len(keys):
        raise BadRequest("one is named twice", field="refs", reason="duplicate")
    runner = request.app[RUNNER]
    async with runner.gate.inside():
        missing = await runner.lanes.inputs.run(lambda stop: runner.inputs.missing(keys, stop))
    return json_response(Probed(missing=[InputReference(cache_key=key) for key in missing]))


@offers(
    Answer(200, "All of them are here.", Pushed),
    parameters=(DECLARED,),
    takes=Body(media=MEDIA_TYPES, says="A tar.gz of `<key>` and `<key>.json` pairs."),
    raises=(Overloaded, InsufficientStorage),
)
async def push(request: web.Request) -> web.Response:
    """Takes a tar.gz of `<key>` and `<key>.json` pairs: all of them, or none and an error."""
    runner = request.app[RUNNER]
    headers.require_media_type(request, *MEDIA_TYPES)
    declared = headers.count(request, EXPANDED_BYTES)
    if (request.content_length or 0) > runner.inputs.max_bytes:
        raise BodyTooLarge("it is more than the cache takes", reason="declared")
    under_way = request.app[_UNDER_WAY]
    if under_way.locked():
        raise Overloaded("many pushes are under way", retry_after=1)
    async with (
        under_way,
        runner.gate.inside(),
        Push(runner.inputs, runner.data.staging, declared=declared) as pushed,
    ):
        async for chunk in bodies.chunks(request):
            await pushed.feed(chunk)
        stored = await pushed.finish()
    request[EVENT]["stored"] = stored
    return json_response(Pushed(stored=stored))
