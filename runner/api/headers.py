"""What requests say in their headers, and bodies as typed data."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from aiohttp import web

from runner.api import bodies
from runner.context import RUNNER
from runner.errors import (
    BadRequest,
    InvalidSessionId,
    SessionUnbound,
    UnsupportedMediaType,
)
from runner.execution.idempotency import KEY
from runner.settings import sidecar_key

SESSION = "X-Runtime-Session-Id"
INCARNATION = "X-Incarnation-Id"
EXPECTED_INCARNATION = "X-Expected-Incarnation"
SIDECAR_KEY = "X-Sidecar-Key"
IDEMPOTENCY_KEY = "Idempotency-Key"
#: Of a checkpoint: the tar's bytes, in full, without its sidecar.
EXPANDED_BYTES = "X-Checkpoint-Expanded-Bytes"
#: On every response: its request's wide event in the log, by an id of ours.
REQUEST_ID = "X-Request-Id"
#: On responses: which execution this is, and that another request had begun it.
EXECUTION = "X-Execution-Id"
REPLAYED = "Idempotent-Replayed"
EVENT_STREAM = "text/event-stream"

_COUNT = re.compile(r"0|[1-9][0-9]{0,15}")
_SESSION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_INCARNATION_ID = re.compile(r"[\x21-\x7e]{1,128}")

T = TypeVar("T")


def session_id(request: web.Request) -> str | None:
    """The session that the request opts into, or None. Raises `InvalidSessionId`.

    A deployment that has no sessions does not look at the header.
    """
    if not request.app[RUNNER].settings.sessions:
        return None
    values = request.headers.getall(SESSION, [])
    if not values:
        return None
    if len(values) > 1:
        raise InvalidSessionId("it was sent more than once", field=SESSION, reason="repeated")
    if not _SESSION_ID.fullmatch(values[0]):
        raise InvalidSessionId(field=SESSION, reason="malformed")
    return values[0]


def required_session_id(request: web.Request) -> str:
    """For routes that are about a session."""
    if not request.app[RUNNER].settings.sessions:
        raise SessionUnbound("this runner has no sessions", reason="no_sessions")
    named = session_id(request)
    if named is None:
        # 409, as this family has it: no workspace is anybody's who does not say whose.
        raise SessionUnbound("the request names none", field=SESSION, reason="missing")
    return named


def expected_incarnation(request: web.Request) -> str | None:
    """The incarnation that the caller means, if it says so."""
    value = single(request, EXPECTED_INCARNATION)
    if value is not None and not _INCARNATION_ID.fullmatch(value):
        raise BadRequest("it is malformed", field=EXPECTED_INCARNATION)
    return value


def idempotency_key(request: web.Request) -> str | None:
    """The caller's name for this execution, if it gave one."""
    value = single(request, IDEMPOTENCY_KEY)
    if value is not None and not KEY.fullmatch(value):
        raise BadRequest("it is 1 to 255 visible ASCII characters", field=IDEMPOTENCY_KEY)
    return value


def wants_events(request: web.Request) -> bool:
    """Whether `Accept` names text/event-stream; `*/*` does not."""
    ranges = ",".join(request.headers.getall("Accept", [])).split(",")
    return any(each.partition(";")[0].strip().lower() == EVENT_STREAM for each in ranges)


def given_sidecar_key(request: web.Request) -> bytes | None:
    """The key that the control plane gives for this checkpoint or restore."""
    value = single(request, SIDECAR_KEY)
    if value is None:
        return None
    try:
        return sidecar_key(value)
    except ValueError as error:
        raise BadRequest(f"it takes {error}", field=SIDECAR_KEY) from None


def flag(request: web.Request, name: str) -> bool:
    """A header that says true or false; false where it is not sent."""
    value = single(request, name) or "false"
    if value not in ("true", "false"):
        raise BadRequest("it takes true or false", field=name)
    return value == "true"


def entity_tags(request: web.Request, name: str) -> list[str]:
    """The entity tags of a header that may hold several (RFC 9110 section 8.8.3)."""
    named = ",".join(request.headers.getall(name, [])).split(",")
    return [tag.strip().removeprefix("W/") for tag in named if tag.strip()]


def single(request: web.Request, name: str) -> str | None:
    """A header that may be sent once."""
    values = request.headers.getall(name, [])
    if len(values) > 1:
        raise BadRequest("it was sent more than once", field=name, reason="repeated")
    return values[0] if values else None


def count(request: web.Request, name: str) -> int | None:
    """A header that says a number of bytes."""
    value = single(request, name)
    if value is None:
        return None
    if not _COUNT.fullmatch(value):
        raise BadRequest("it is a number of bytes", field=name)
    return int(value)


def require_media_type(request: web.Request, *accepted: str) -> None:
    """Raises `UnsupportedMediaType` unless the body says it is one of `accepted`, as it is."""
    if request.content_type not in accepted:
        raise UnsupportedMediaType(f"it takes {', '.join(accepted)}", field="Content-Type")
    refuse_encoding(request)


def refuse_encoding(request: web.Request) -> None:
    """Raises `UnsupportedMediaType` for a body that is to be decoded before it is what it is.

    The sizes that are checked are those of the bytes that came: nothing is inflated on the way in.
    """
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("it takes a body as it is", field="Content-Encoding")


async def json_body(request: web.Request, kind: type[T]) -> T:
    """The body as `kind`. Raises for another media type, too many bytes, bad JSON, wrong types."""
    require_media_type(request, "application/json")
    raw = await bodies.whole(request)
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        # `Expected `int`, got `str` - at `$.run_timeout``: our types and their field, no values.
        text, _, where = str(error).partition(" - at ")
        raise BadRequest(text, field=where.strip("`").removeprefix("$.") or None) from None
    except msgspec.DecodeError:
        raise BadRequest("the body is not JSON", reason="not_json") from None
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8", reason="not_json") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply", reason="not_json") from None
