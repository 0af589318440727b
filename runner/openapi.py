"""The contract as OpenAPI 3.1, from the route table, the wire types and the error tree. Pure."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from runner import wire
from runner.api import headers, hooks
from runner.errors import RunnerError
from runner.health import Report

JSON, ARCHIVE, BYTES = "application/json", "application/x-gtar", "application/octet-stream"
HOOK = f"{hooks.PREFIX}/"
#: What each route takes and gives, where it is JSON of a type of ours.
BODIES: dict[tuple[str, str], tuple[Any, Any]] = {
    ("GET", "/health"): (None, Report),
    ("POST", "/execute"): (wire.ExecuteRequest, wire.ExecuteResult),
    ("POST", "/session/restore"): (None, wire.Restored),
    ("POST", "/session/boot"): (None, wire.Boot),
    ("GET", "/session/boot"): (None, wire.Boot),
    ("POST", "/session/inputs/probe"): (wire.ProbeRequest, wire.Probed),
    ("POST", "/session/inputs"): (None, wire.Pushed),
    ("GET", "/session/files"): (None, wire.FileList),
    ("PUT", "/session/files/{path:.+}"): (None, wire.FileInfo),
    ("POST", "/session/terminal/ticket"): (None, wire.TerminalTicket),
    ("GET", "/runtimes"): (None, list[wire.RuntimeInfo]),
    **{
        ("POST", HOOK + name): (hooks.HookBody, hooks.HookReply)
        for name in ("ready", "validate", "run", "suspend", "resume", "terminate")
    },
}
#: Bodies that are no JSON: the media type of what is taken, and of what is given.
MEDIA: dict[tuple[str, str], tuple[str | None, str | None]] = {
    ("GET", "/session/checkpoint"): (None, ARCHIVE),
    ("POST", "/session/restore"): (ARCHIVE, None),
    ("POST", "/session/inputs"): (ARCHIVE, None),
    ("GET", "/session/files/{path:.+}"): (None, BYTES),
    ("PUT", "/session/files/{path:.+}"): (BYTES, None),
    ("GET", "/metrics"): (None, "text/plain"),
}


class Row(Protocol):
    """As much of a route as the contract tells."""

    @property
    def method(self) -> str:
        """GET, POST, PUT or DELETE."""

    @property
    def path(self) -> str:
        """As aiohttp writes it: `{name:.+}` may contain slashes."""

    @property
    def handler(self) -> Any:
        """Its docstring says what it does."""


def document(routes: Iterable[Row]) -> dict[str, Any]:
    """The whole document. Every route is served once more below /api/v2."""
    bodies = [body for pair in BODIES.values() for body in pair if body is not None]
    schemas, components = msgspec.json.schema_components(
        bodies, ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(map(id, bodies), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, schema_of)
        paths.setdefault(route.path.replace(":.+}", "}"), {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sandbox-runner",
            "version": importlib.metadata.version("sandbox-runner"),
        },
        "servers": [{"url": "/"}, {"url": "/api/v2"}],
        "paths": paths,
        "components": {
            "schemas": dict(components) | {"Error": _error_schema()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Row, schema_of: dict[int, Any]) -> dict[str, Any]:
    key = (route.method, route.path)
    taken, given = BODIES.get(key, (None, None))
    takes, gives = MEDIA.get(key, (None, None))
    operation: dict[str, Any] = {
        "summary": (route.handler.__doc__ or "").strip().splitlines()[0],
        "parameters": _parameters(route.path),
        "responses": {
            "2XX": {"description": "As asked."} | _content(given, gives, schema_of),
            "default": {
                "description": "What went wrong; branch on `error` and the status.",
                "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if taken is not None or takes is not None:
        operation["requestBody"] = _content(taken, takes, schema_of)
    return operation


def _content(body: Any, media: str | None, schema_of: dict[int, Any]) -> dict[str, Any]:
    if media is not None:
        return {"content": {media: {}}}
    return {"content": {JSON: {"schema": schema_of[id(body)]}}} if body is not None else {}


def _parameters(path: str) -> list[dict[str, Any]]:
    """Those of the path, and the two headers that name a session and a life of it."""
    named = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)", path)
    ]
    if path == "/execute" or path.startswith("/session/"):
        named += [
            {"name": name, "in": "header", "schema": {"type": "string"}}
            for name in (headers.SESSION, headers.EXPECTED_INCARNATION)
        ]
    return named


def _error_schema() -> dict[str, Any]:
    """The one error shape, with every code there is."""
    return {
        "type": "object",
        "properties": {
            "error": {"type": "string", "enum": sorted(_codes(RunnerError))},
            "message": {"type": "string"},
            "retryable": {"type": "boolean"},
            "recycle": {"type": "boolean"},
            "field": {"type": "string"},
            "reason": {"type": "string"},
        },
        "required": ["error", "message", "retryable", "recycle"],
    }


def _codes(kind: type[RunnerError]) -> set[str]:
    own = {kind.code} if hasattr(kind, "code") else set()
    return own.union(*(_codes(each) for each in kind.__subclasses__()))
