"""GET and HEAD /health: is it alive, is it ready."""

from __future__ import annotations

from typing import Literal

from aiohttp import web
from msgspec import Struct

from runner.api.contract import Answer, Parameter, offers
from runner.api.responses import json_response
from runner.context import RUNNER
from runner.errors import BadRequest
from runner.health import Report

LEVEL = Parameter(
    "query",
    "level",
    "`alive`: it serves, and only `status` and `level` are said. `ready`: it can do its job.",
    {"type": "string", "enum": ["alive", "ready"], "default": "ready"},
)


class Alive(Struct, frozen=True):
    """Body of GET /health?level=alive."""

    status: Literal["healthy"] = "healthy"
    level: Literal["alive"] = "alive"


@offers(
    Answer(200, "Alive, or ready.", (Report, Alive)),
    Answer(503, "Not ready: the same report.", Report),
    parameters=(LEVEL,),
)
async def get(request: web.Request) -> web.Response:
    """`?level=alive` answers as soon as the process serves; the default is `ready`: 200 or 503.

    Neither takes the session's lock or starts a jail: readiness is probed beside the requests.
    """
    runner = request.app[RUNNER]
    level = request.query.get("level", "ready")
    if level == "alive":
        return json_response(Alive())
    if level != "ready":
        raise BadRequest("level is alive or ready", field="level")
    report = runner.readiness.report()
    return json_response(report, status=200 if report.ready else 503)


@offers(
    Answer(200, "Alive, or ready."),
    Answer(503, "Not ready."),
    parameters=(LEVEL,),
)
async def head(request: web.Request) -> web.Response:
    """The status of GET alone, which is all that some probes ask for."""
    return await get(request)
