"""Around every route: one wide event, one error shape, one authority check, two headers."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from runner.api import headers
from runner.context import RUNNER
from runner.errors import (
    BadRequest,
    BodyTooLarge,
    Internal,
    NotFound,
    RangeNotSatisfiable,
    RunnerError,
    Unauthorized,
)
from runner.execution.request import new_id
from runner.terminal.tickets import Ticket

log = logging.getLogger("runner.request")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Paths that need no token.
OPEN_PATHS: web.AppKey[frozenset[str]] = web.AppKey("open_paths", frozenset)
#: Paths whose `ticket` query parameter stands for the token.
TICKET_PATHS: web.AppKey[frozenset[str]] = web.AppKey("ticket_paths", frozenset)
#: The ticket that let a request in.
TICKET: web.RequestKey[Ticket] = web.RequestKey("ticket", Ticket)
#: What a handler adds to its request's wide event.
EVENT: web.RequestKey[dict[str, object]] = web.RequestKey("event", dict)

#: What nginx calls a client that left before its answer; only in logs and metrics.
CLIENT_LEFT = 499


@web.middleware
async def wide_event(request: web.Request, handler: Handler) -> web.StreamResponse:
    """One log event and one count per request, whatever became of it."""
    started = time.monotonic()
    event: dict[str, object] = {"request_id": new_id()}
    request[EVENT] = event
    status = CLIENT_LEFT
    try:
        with request.app[RUNNER].loop_lag.watched():
            response = await handler(request)
        status = response.status
        return response
    except ConnectionError:
        # The client left while its answer was written; nobody is there to be told.
        raise asyncio.CancelledError from None
    finally:
        seconds = time.monotonic() - started
        resource = request.match_info.route.resource
        route = resource.canonical if resource else "none"
        runner = request.app[RUNNER]
        runner.metrics.request(method=request.method, route=route, status=status, seconds=seconds)
        log.info(
            "request",
            extra={
                "method": request.method,
                "route": route,
                "status": status,
                "ms": round(seconds * 1000, 1),
                "state": runner.session.state.value,
                "incarnation": runner.session.incarnation,
            }
            | event,
        )


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure becomes the one error shape; an unforeseen one is logged and `internal`."""
    try:
        return await handler(request)
    except RunnerError as error:
        failure = error
    except web.HTTPRequestEntityTooLarge:
        failure = BodyTooLarge()
    except web.HTTPException as error:
        failure = _of_http(error)
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception:
        log.exception("unforeseen failure")
        failure = Internal()
    event = request[EVENT]
    event["error"] = failure.code
    if failure.reason:
        event["reason"] = failure.reason
    response = web.json_response(failure.body(), status=failure.status)
    if failure.retry_after is not None:
        response.headers["Retry-After"] = str(failure.retry_after)
    if failure.status == Unauthorized.status:
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(failure, RangeNotSatisfiable):
        response.headers["Content-Range"] = f"bytes */{failure.extra['size']}"
    return response


def _of_http(error: web.HTTPException) -> RunnerError:
    # An unknown path and a known path with another method are both nothing that is here: the
    # runners of this family say 404 for either.
    if error.status in (404, 405):
        return NotFound()
    return BadRequest() if 400 <= error.status < 500 else Internal()


@web.middleware
async def authority(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Where a token is set, every path but the open ones needs it. Compared in constant time.

    Where a ticket is taken, one that is given decides alone: a wrong one is refused beside a token.
    """
    runner = request.app[RUNNER]
    token = runner.settings.token
    resource = request.match_info.route.resource
    path = resource.canonical if resource is not None else ""
    if path in request.app[TICKET_PATHS] and "ticket" in request.query:
        request[TICKET] = runner.terminals.tickets.redeem(request.query["ticket"])
    elif token is not None and path not in request.app[OPEN_PATHS]:
        given = request.headers.getall("Authorization", [])
        # RFC 9110 §11.1: a scheme is the same in any case.
        scheme, _, word = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            word.encode("utf-8", "surrogateescape"), token.encode()
        ):
            raise Unauthorized
    return await handler(request)


async def name_response(request: web.Request, response: web.StreamResponse) -> None:
    """Every response names its request's wide event, and the incarnation once there is one.

    Also one that a handler prepares by itself: a stream, a file, an upgrade.
    """
    event = request.get(EVENT)
    # aiohttp refuses an unknown `Expect` before any middleware: that request has no event.
    if event is not None:
        response.headers[headers.REQUEST_ID] = str(event["request_id"])
    incarnation = request.app[RUNNER].session.incarnation
    if incarnation is not None:
        response.headers[headers.INCARNATION] = incarnation
