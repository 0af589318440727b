"""/session/boot: idempotent provisioning, and what the last one printed."""

from __future__ import annotations

from aiohttp import web

from runner.api import headers
from runner.api.contract import EXPECTED, SESSION, Answer, offers
from runner.api.responses import json_response
from runner.context import RUNNER, Runner
from runner.wire import Boot


@offers(Answer(200, "It is provisioned.", Boot), parameters=(SESSION, EXPECTED))
async def post(request: web.Request) -> web.Response:
    """Provisions a fresh session; on a ready one it does nothing. Concurrent boots are one."""
    runner = request.app[RUNNER]
    session_id = headers.required_session_id(request)
    runner.session.admit(session_id, expected_incarnation=headers.expected_incarnation(request))
    await runner.session.boot(runner.provision)
    return _boot(runner)


@offers(Answer(200, "The last boot.", Boot), parameters=(SESSION, EXPECTED))
async def get(request: web.Request) -> web.Response:
    """What the hooks of the incarnation's last boot did and printed."""
    runner = request.app[RUNNER]
    runner.session.require_bound(headers.required_session_id(request))
    runner.session.expect(headers.expected_incarnation(request))
    return _boot(runner)


def _boot(runner: Runner) -> web.Response:
    session = runner.session
    return json_response(
        Boot(state=session.state.value, incarnation=session.incarnation, last=runner.boots.last)
    )
