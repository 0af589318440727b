"""GET /metrics: Prometheus text."""

from __future__ import annotations

from aiohttp import web

from runner.api.contract import Answer, offers
from runner.context import RUNNER
from runner.metrics import CONTENT_TYPE


@offers(Answer(200, "The metrics.", media=("text/plain",)))
async def get(request: web.Request) -> web.Response:
    """Never waits for the session."""
    runner = request.app[RUNNER]
    terminals = 0 if runner.terminals.live is None else 1
    body = runner.metrics.render(runner.session.state, terminals=terminals)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
