"""POST /execute: run code, in a session's workspace or in a throw-away one."""

from __future__ import annotations

import os

from aiohttp import web

from runner.api import headers
from runner.api.middleware import EVENT
from runner.api.responses import json_response
from runner.context import RUNNER, Runner
from runner.execution.executor import Executed
from runner.execution.request import Plan, plan
from runner.session.lifecycle import Operation
from runner.wire import ExecuteRequest


async def post(request: web.Request) -> web.StreamResponse:
    """200 with a result for whatever the program did; an error for what we or the caller did."""
    runner = request.app[RUNNER]
    session_id = headers.session_id(request)
    expected = headers.expected_incarnation(request)
    wanted = plan(
        await headers.json_body(request, ExecuteRequest),
        runtimes=runner.runtimes,
        settings=runner.settings,
        cpus=os.cpu_count() or 1,
    )
    request[EVENT]["language"] = wanted.runtime.language
    if session_id is None:
        return _response(request, await runner.executor.stateless(wanted))
    executed, epoch = await _in_session(runner, session_id, expected, wanted)
    response = _response(request, executed)
    # Written here and not by the framework, to know that it is out before it counts as received.
    await response.prepare(request)
    await response.write_eof()
    runner.session.note_surfaced(executed.delivered, epoch=epoch)
    return response


async def _in_session(
    runner: Runner, session_id: str, expected: str | None, wanted: Plan
) -> tuple[Executed, int]:
    runner.session.admit(session_id, expected_incarnation=expected)
    async with runner.session.hold(
        Operation.EXECUTE, expected_incarnation=expected, provision=runner.provision
    ) as hold:
        return await runner.executor.in_session(wanted, hold), runner.session.epoch


def _response(request: web.Request, executed: Executed) -> web.Response:
    outcome = executed.result.run.outcome
    request[EVENT].update(
        {
            "outcome": outcome.kind,
            "fault": outcome.fault,
            "wall_ms": executed.result.run.wall_time,
            "cpu_ms": executed.result.run.cpu_time,
            "memory": executed.result.run.memory,
            "files": len(executed.result.files),
        }
    )
    return json_response(executed.result)
