"""GET /health: is it alive, is it ready."""

from __future__ import annotations

from aiohttp import web

from runner.api.responses import json_response
from runner.context import RUNNER
from runner.errors import BadRequest


async def get(request: web.Request) -> web.Response:
    """`?level=alive` answers as soon as the process serves; the default is `ready`: 200 or 503.

    Neither takes the session's lock or starts a jail: readiness is probed beside the requests.
    """
    runner = request.app[RUNNER]
    level = request.query.get("level", "ready")
    if level == "alive":
        return json_response({"status": "healthy", "level": "alive"})
    if level != "ready":
        raise BadRequest("level is alive or ready", field="level")
    report = runner.readiness.report()
    return json_response(report, status=200 if report.ready else 503)
