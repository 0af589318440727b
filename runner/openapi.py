"""The contract as OpenAPI 3.1: the route table, what its handlers declare, the wire types and the
error tree. Nothing is said here that is said there. Pure."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

from runner.api import contract
from runner.api.contract import (
    EVERYWHERE,
    JSON,
    SESSION,
    Access,
    Answer,
    Contract,
    Errors,
    Parameter,
    Said,
)
from runner.errors import (
    BootFailed,
    InsufficientStorage,
    Internal,
    RangeNotSatisfiable,
    RunnerError,
    SessionBusy,
    SessionUnbound,
    Unauthorized,
    WorkspaceDirty,
)
from runner.session import lifecycle
from runner.session.lifecycle import Operation, State

_REFERENCE = "#/components/schemas/{name}"
_ERROR = {"$ref": _REFERENCE.format(name="Error")}
#: What the callers of a route show, as names of `securitySchemes`.
_SHOWN: dict[Access, list[dict[str, list[str]]]] = {
    Access.ANYONE: [],
    Access.TOKEN: [{"token": []}],
    Access.TICKET: [{"token": []}, {"ticket": []}],
}
_SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "RUNNER_TOKEN; nothing is asked for where none is set.",
    },
    "ticket": {
        "type": "apiKey",
        "in": "query",
        "name": "ticket",
        "description": "Of POST /session/terminal/ticket: in place of the token and the session.",
    },
}
#: What responses of one error say beside it.
_BESIDE: dict[type[RunnerError], Said] = {
    Unauthorized: Said("WWW-Authenticate", "`Bearer`."),
    RangeNotSatisfiable: Said("Content-Range", "How many bytes there are."),
}
_RETRY_AFTER = Said("Retry-After", "Seconds, where waiting helps.", contract.COUNT)


class Row(Protocol):
    """As much of a route as the contract tells."""

    @property
    def method(self) -> str:
        """GET, HEAD, POST, PUT or DELETE."""

    @property
    def path(self) -> str:
        """As aiohttp writes it: `{name:.+}` may contain slashes."""

    @property
    def handler(self) -> Any:
        """Its docstring says what it does."""

    @property
    def access(self) -> Access:
        """Who may call."""

    @property
    def operation(self) -> Operation | None:
        """What it asks of the session."""


class Schemas:
    """Every type of ours that a body is of, as JSON Schema."""

    def __init__(self, contracts: Iterable[Contract]) -> None:
        kinds = [kind for each in contracts for kind in _kinds(each)]
        schemas, self.components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
        self._of = dict(zip(map(id, kinds), schemas, strict=True))

    def content(self, kinds: tuple[Any, ...], media: tuple[str, ...]) -> dict[str, Any]:
        """By media type; `kinds`: JSON of one of these."""
        told = [self._of[id(kind)] for kind in kinds]
        content: dict[str, Any] = {each: {} for each in media}
        if told:
            content = {JSON: {"schema": told[0] if len(told) == 1 else {"anyOf": told}}} | {
                each: {} for each in media if each != JSON
            }
        return {"content": content} if content else {}


def _kinds(declared: Contract) -> Iterator[Any]:
    if declared.takes is not None:
        yield from declared.takes.types
    for answer in declared.gives:
        yield from answer.types


def document(routes: Iterable[Row]) -> dict[str, Any]:
    """The whole document. Every route is served once more below /api/v2."""
    rows = list(routes)
    schemas = Schemas(contract.of(row.handler) for row in rows)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        path = paths.setdefault(row.path.replace(":.+}", "}"), {})
        path[row.method.lower()] = _operation(row, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sandbox-runner",
            "version": importlib.metadata.version("sandbox-runner"),
        },
        "servers": [{"url": "/"}, {"url": "/api/v2"}],
        "paths": paths,
        "components": {
            "schemas": dict(schemas.components) | {"Error": _error_schema()},
            "securitySchemes": _SCHEMES,
        },
    }


def _operation(row: Row, schemas: Schemas) -> dict[str, Any]:
    declared = contract.of(row.handler)
    summary, _, more = (inspect.getdoc(row.handler) or "").partition("\n")
    responses = {str(answer.status): _success(answer, schemas) for answer in declared.gives}
    for status, kinds in _by_status(refusals(row)).items():
        # A status that is an answer too (503 of /health) is that answer.
        responses.setdefault(str(status), _failure(kinds))
    responses["default"] = {
        "description": "What went wrong; branch on `error` and the status.",
        "content": {JSON: {"schema": _ERROR}},
    }
    operation: dict[str, Any] = {
        "operationId": f"{row.handler.__module__.rpartition('.')[2]}_{row.handler.__name__}",
        "summary": summary,
        "description": more.strip(),
        "security": _SHOWN[row.access],
        "parameters": [_parameter(each) for each in declared.parameters],
        "responses": responses,
    }
    if (takes := declared.takes) is not None:
        operation["requestBody"] = {
            "description": takes.says,
            "required": takes.required,
        } | schemas.content(takes.types, takes.media)
    return operation


def _parameter(each: Parameter) -> dict[str, Any]:
    return {
        "name": each.name,
        "in": each.place,
        "description": each.says,
        "required": each.required,
        "schema": dict(each.schema),
    }


def _said(*headers: Said) -> dict[str, Any]:
    return {each.name: {"description": each.says, "schema": dict(each.schema)} for each in headers}


def _success(answer: Answer, schemas: Schemas) -> dict[str, Any]:
    return {
        "description": answer.says,
        "headers": _said(*answer.headers, *EVERYWHERE),
    } | schemas.content(answer.types, answer.media)


def _failure(kinds: list[type[RunnerError]]) -> dict[str, Any]:
    beside = [said for kind, said in _BESIDE.items() if kind in kinds]
    if any(kind.retryable for kind in kinds):
        beside.append(_RETRY_AFTER)
    return {
        "description": "\n".join(f"- `{kind.code}`: {inspect.getdoc(kind)}" for kind in kinds),
        "headers": _said(*beside, *EVERYWHERE),
        "content": {
            JSON: {
                "schema": {
                    "allOf": [_ERROR],
                    "properties": {"error": {"enum": [kind.code for kind in kinds]}},
                }
            }
        },
    }


def refusals(row: Row) -> set[type[RunnerError]]:
    """Every failure that a route may answer."""
    declared = contract.of(row.handler)
    may: set[type[RunnerError]] = {Internal, *declared.raises}
    if row.access is not Access.ANYONE:
        may.add(Unauthorized)
    for parameter in declared.parameters:
        may.update(parameter.raises)
    if declared.takes is not None:
        may.update(declared.takes.raises)
    if row.operation is not None and any(
        parameter.name == SESSION.name for parameter in declared.parameters
    ):
        may.update(_of_holding(row.operation))
    return {leaf for kind in may for leaf in _answered(kind)}


def _of_holding(operation: Operation) -> Errors:
    """What a session refuses whoever would hold it: docs/lifecycle.md."""
    held: Errors = (SessionBusy, SessionUnbound, WorkspaceDirty, InsufficientStorage)
    boots_first = lifecycle.find(State.FRESH, operation) is None
    return (*held, BootFailed) if boots_first or operation is Operation.BOOT else held


def _by_status(kinds: set[type[RunnerError]]) -> dict[int, list[type[RunnerError]]]:
    told: dict[int, list[type[RunnerError]]] = {}
    for kind in sorted(kinds, key=lambda each: (each.status, each.code)):
        told.setdefault(kind.status, []).append(kind)
    return told


def _answered(kind: type[RunnerError]) -> set[type[RunnerError]]:
    """The class itself, or of a branch its leaves."""
    if hasattr(kind, "code"):
        return {kind}
    return {leaf for each in kind.__subclasses__() for leaf in _answered(each)}


def _error_schema() -> dict[str, Any]:
    """The one error shape, with every code there is."""
    return {
        "type": "object",
        "description": "More members, such as `outcome`, say more of some errors.",
        "properties": {
            "error": {"type": "string", "enum": sorted(_codes(RunnerError))},
            "message": {"type": "string"},
            "retryable": {
                "type": "boolean",
                "description": "The same request on the same VM can succeed.",
            },
            "recycle": {
                "type": "boolean",
                "description": "This VM's workspace is not to be trusted: take another VM.",
            },
            "field": {"type": "string", "description": "What in the request is meant."},
            "reason": {"type": "string", "description": "A stable word below the code."},
        },
        "required": ["error", "message", "retryable", "recycle"],
    }


def _codes(kind: type[RunnerError]) -> set[str]:
    own = {kind.code} if hasattr(kind, "code") else set()
    return own.union(*(_codes(each) for each in kind.__subclasses__()))
