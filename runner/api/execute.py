"""POST /execute: run code, in a session's workspace or in a throw-away one. DELETE: end it."""

from __future__ import annotations

import asyncio
import os

from aiohttp import web

from runner.api import events, headers
from runner.api.contract import EXPECTED, MAYBE_SESSION, Answer, Body, Parameter, Said, offers
from runner.api.middleware import EVENT
from runner.context import RUNNER
from runner.errors import (
    BadRequest,
    IdempotencyMismatch,
    InputUnavailable,
    InvalidPath,
    JailFailed,
    LimitExceeded,
    NotFound,
    Overloaded,
)
from runner.execution.executions import Attended
from runner.execution.idempotency import Key, digest
from runner.execution.request import plan
from runner.execution.running import Finished, Order
from runner.wire import ExecuteRequest, ExecuteResult

ACCEPT = Parameter(
    "header",
    "Accept",
    f"`{headers.EVENT_STREAM}` asks for the execution as live events (docs/streaming.md).",
    raises=(),
)
KEY = Parameter(
    "header",
    headers.IDEMPOTENCY_KEY,
    "The caller's name for this execution: sent again, the same result is answered once more.",
    {"type": "string", "pattern": r"^[\x21-\x7e]{1,255}$"},
    raises=(BadRequest, IdempotencyMismatch),
)
ID = Parameter("path", "id", "The execution's id, or its key.", required=True, raises=(NotFound,))


@offers(
    Answer(
        200,
        "The program ran, whatever became of it; as events it ends with `result` or `error`.",
        ExecuteResult,
        (headers.EVENT_STREAM,),
        (
            Said(headers.EXECUTION, "The execution's id."),
            Said(headers.REPLAYED, "`true`: another request had begun it."),
        ),
    ),
    parameters=(MAYBE_SESSION, EXPECTED, KEY, ACCEPT),
    takes=Body(ExecuteRequest),
    raises=(InvalidPath, LimitExceeded, InputUnavailable, Overloaded, JailFailed),
)
async def post(request: web.Request) -> web.StreamResponse:
    """200 with a result for whatever the program did; an error for what we or the caller did."""
    runner = request.app[RUNNER]
    session_id = headers.session_id(request)
    expected = headers.expected_incarnation(request)
    word = headers.idempotency_key(request)
    body = await headers.json_body(request, ExecuteRequest)
    wanted = plan(
        body, runtimes=runner.runtimes, settings=runner.settings, cpus=os.cpu_count() or 1
    )
    request[EVENT]["language"] = wanted.runtime.language
    order = Order(
        plan=wanted,
        session_id=session_id,
        expected_incarnation=expected,
        key=None if word is None else Key(session_id, word),
        # Of up to RUNNER_BODY_MAX_BYTES.
        digest=b"" if word is None else await asyncio.to_thread(digest, body),
    )
    async with runner.executions.attend(order) as attended:
        request[EVENT]["execution"] = attended.execution.id
        if headers.wants_events(request):
            finished, response = await events.follow(
                request,
                attended,
                head=_head(attended),
                heartbeat=runner.settings.heartbeat,
                patience=wanted.wall_ms / 1000,
            )
        else:
            finished, response = await _answer(request, attended)
        if finished is not None:
            request[EVENT].update(finished.summary)
            runner.executions.received(attended.execution)
    return response


@offers(
    Answer(202, "It was asked to end."),
    Answer(204, "It is over."),
    parameters=(MAYBE_SESSION, ID),
)
async def delete(request: web.Request) -> web.StreamResponse:
    """202 when it has been asked to end, 204 when it is over; named by its id or by its key."""
    runner = request.app[RUNNER]
    is_ending = runner.executions.cancel(
        request.match_info["id"], session_id=headers.session_id(request)
    )
    return web.Response(status=202 if is_ending else 204)


async def _answer(request: web.Request, attended: Attended) -> tuple[Finished, web.StreamResponse]:
    finished = await attended.execution.result()
    response = web.Response(
        body=finished.body,
        content_type="application/json",
        charset="utf-8",
        headers=_head(attended),
    )
    # Written here and not by the framework, to know that it is out before it counts as received.
    await response.prepare(request)
    await response.write_eof()
    return finished, response


def _head(attended: Attended) -> dict[str, str]:
    head = {headers.EXECUTION: attended.execution.id}
    if attended.replayed:
        head[headers.REPLAYED] = "true"
    return head
