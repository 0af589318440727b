"""GET /runtimes: languages and versions that are really here."""

from __future__ import annotations

from aiohttp import web

from runner.api.responses import json_response
from runner.context import RUNNER
from runner.wire import RuntimeInfo


async def get(request: web.Request) -> web.Response:
    """A list, as runners of the Piston family answer it, with the ceilings of the limits."""
    runner = request.app[RUNNER]
    settings = runner.settings
    limits = {
        "run_timeout": round(settings.run_timeout * 1000),
        "compile_timeout": round(settings.compile_timeout * 1000),
        "run_memory_limit": settings.memory_limit,
        "compile_memory_limit": settings.memory_limit,
    }
    return json_response(
        [
            RuntimeInfo(
                language=runtime.language,
                version=runtime.version,
                aliases=list(runtime.aliases),
                compiled=runtime.compile is not None,
                limits=limits,
            )
            for runtime in runner.runtimes
        ]
    )
