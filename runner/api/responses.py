"""Typed data as JSON responses."""

from __future__ import annotations

import msgspec
from aiohttp import web


def json_response(body: object, *, status: int = 200) -> web.Response:
    """`application/json; charset=utf-8`, encoded by msgspec."""
    return web.Response(
        body=msgspec.json.encode(body),
        status=status,
        content_type="application/json",
        charset="utf-8",
    )
