"""GET /runtimes: languages and versions that are really here."""

from __future__ import annotations

import os

from aiohttp import web

from runner.api.contract import Answer, offers
from runner.api.responses import json_response
from runner.context import RUNNER
from runner.execution.limits import ceilings
from runner.wire import RuntimeInfo


@offers(Answer(200, "The runtimes.", list[RuntimeInfo]))
async def get(request: web.Request) -> web.Response:
    """A list, as runners of the Piston family answer it, with the ceilings of the limits."""
    runner = request.app[RUNNER]
    cpus = os.cpu_count() or 1
    return json_response(
        [
            RuntimeInfo(
                language=runtime.language,
                version=runtime.version,
                aliases=list(runtime.aliases),
                compiled=runtime.compile is not None,
                limits=ceilings(runtime, runner.settings, cpus=cpus).fields(),
            )
            for runtime in runner.runtimes
        ]
    )
