"""POST /aws/lambda-microvms/runtime/v1/…: what the platform tells a VM over its life.

A hook that answers anything but 200 is a failed lifecycle step to the platform, so what it sends
that is of no use to us is answered 200 and changes nothing; only what is no JSON at all is refused.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from runner.api import bodies
from runner.api.contract import Answer, Body, offers
from runner.api.responses import json_response
from runner.context import RUNNER, Runner
from runner.errors import (
    BadRequest,
    BodyTooLarge,
    InsufficientStorage,
    NotReady,
    SessionBusy,
    WorkspaceDirty,
)
from runner.vm import clock
from runner.vm.steps import Step

log = logging.getLogger(__name__)

PREFIX = "/aws/lambda-microvms/runtime/v1"
#: Seconds that `ready` and `validate` wait for the first readiness probe to end.
PROBE_WAIT = 20.0
SEED_BYTES_MAX = 1024
_SESSION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class HookBody(msgspec.Struct, frozen=True):
    """What the hooks send; each uses a part of it. `time` is RFC 3339, `seed` base64."""

    microvm_id: str | None = msgspec.field(default=None, name="microvmId")
    payload: str | None = msgspec.field(default=None, name="runHookPayload")
    time: str | None = None
    seed: str | None = None


class RunPayload(msgspec.Struct, frozen=True):
    """The JSON text inside `runHookPayload`: what the control plane gave at launch."""

    runtime_session_id: str | None = None


class HookReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a hook answers."""

    hook: str
    status: str
    steps: list[Step] = []


#: Whatever media type it claims.
_TAKES = Body(HookBody, required=False, raises=(BadRequest, BodyTooLarge))
_DONE = Answer(200, "Done, or nothing was to be done.", HookReply)


@offers(_DONE, raises=(NotReady,))
async def ready(request: web.Request) -> web.Response:
    """200 once every check of a real jail has passed; the platform then takes its snapshot."""
    return await _checked(request, "ready")


@offers(_DONE, raises=(NotReady,))
async def validate(request: web.Request) -> web.Response:
    """The same of a VM that was started from the snapshot."""
    return await _checked(request, "validate")


async def _checked(request: web.Request, hook: str) -> web.Response:
    runner = request.app[RUNNER]
    report = await runner.readiness.wait(PROBE_WAIT)
    if not report.ready:
        failed = [check.name for check in report.checks if not check.ok]
        raise NotReady(f"these checks failed: {', '.join(failed)}", failed=failed)
    return json_response(HookReply(hook=hook, status="ok"))


@offers(_DONE, takes=_TAKES, raises=(InsufficientStorage,))
async def run(request: web.Request) -> web.Response:
    """Names the VM and the session that it is for. The first valid one wins.

    It is the first thing that a clone of a snapshot is told, so before anything is made in the
    session's name, clock and randomness become this clone's own.
    """
    runner = request.app[RUNNER]
    body = await _body(request)
    session_id = _session_id(body.payload)
    if session_id is None:
        log.warning("a run hook without a valid session was ignored")
        return json_response(HookReply(hook="run", status="ok"))
    if body.microvm_id:
        runner.machine.identify(body.microvm_id)
    steps = [] if runner.session.incarnation else await _resume(runner, body)
    try:
        runner.session.admit(session_id, expected_incarnation=None)
    except WorkspaceDirty:
        log.warning("a run hook for another session was ignored")
    except SessionBusy:
        log.warning("a run hook for a VM that is being terminated was ignored")
    return json_response(HookReply(hook="run", status="ok", steps=steps))


@offers(_DONE, takes=_TAKES)
async def suspend(request: web.Request) -> web.Response:
    """Quiesces and syncs; says of each whether it was done."""
    return await _act(request, "suspend", lambda runner, _: runner.machine.suspend())


@offers(_DONE, takes=_TAKES)
async def resume(request: web.Request) -> web.Response:
    """Clock, entropy, and nothing of before the suspend is kept warm; says what was done."""
    return await _act(request, "resume", _resume)


@offers(_DONE, takes=_TAKES)
async def terminate(request: web.Request) -> web.Response:
    """Ends and reaps every jail, then wipes."""
    return await _act(request, "terminate", lambda runner, _: runner.machine.terminate())


async def _resume(runner: Runner, body: HookBody) -> list[Step]:
    seed = b""
    if body.seed is not None:
        try:
            seed = base64.b64decode(body.seed, validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest("it is not valid base64", field="seed") from None
        if len(seed) > SEED_BYTES_MAX:
            raise BadRequest(f"it takes at most {SEED_BYTES_MAX} bytes", field="seed")
    time_ns = None
    if body.time is not None:
        time_ns = clock.parse_time(body.time)
        if time_ns is None:
            raise BadRequest("it takes RFC 3339 with an offset", field="time")
    return await runner.machine.resume(given_time_ns=time_ns, seed=seed)


async def _act(
    request: web.Request, hook: str, act: Callable[[Runner, HookBody], Awaitable[list[Step]]]
) -> web.Response:
    steps = await act(request.app[RUNNER], await _body(request))
    return json_response(HookReply(hook=hook, status="ok", steps=steps))


async def _body(request: web.Request) -> HookBody:
    """The body, whatever media type it claims, if any. No body is an empty one."""
    raw = await bodies.whole(request)
    try:
        return msgspec.json.decode(raw or b"{}", type=HookBody)
    except msgspec.ValidationError:
        log.warning("a hook's body was not understood")
        return HookBody()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest("the body is not JSON", reason="not_json") from None


def _session_id(payload: str | None) -> str | None:
    try:
        named = msgspec.json.decode(payload or "{}", type=RunPayload).runtime_session_id
    except (msgspec.MsgspecError, RecursionError):
        return None
    return named if named is not None and _SESSION_ID.fullmatch(named) else None
