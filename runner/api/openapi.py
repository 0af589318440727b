"""GET /openapi.json: the contract."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from runner.api.contract import JSON, Answer, offers
from runner.api.responses import json_response

DOCUMENT: web.AppKey[dict[str, Any]] = web.AppKey("openapi", dict)


@offers(Answer(200, "The document.", media=(JSON,)))
async def get(request: web.Request) -> web.Response:
    """OpenAPI 3.1, made from the route table and the wire types."""
    return json_response(request.app[DOCUMENT])
