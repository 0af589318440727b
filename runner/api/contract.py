"""What a handler says of itself: what it reads, takes, gives and refuses. Words only.

It stands beside the handler (`@offers`), and `runner.openapi` makes the contract of it. Tests find
what the handlers really read and answer: neither more nor less may be declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeVar

from runner.api import headers
from runner.errors import (
    BadRequest,
    BodyTooLarge,
    IncarnationMismatch,
    InvalidPath,
    InvalidSessionId,
    RunnerError,
    SessionUnbound,
    UnsupportedMediaType,
    WorkspaceDirty,
)

JSON = "application/json"
Schema = Mapping[str, Any]
Errors = tuple[type[RunnerError], ...]
Place = Literal["path", "query", "header"]
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "string", "enum": ["0", "1"]}
COUNT: Schema = {"type": "integer", "minimum": 0}


class Access(StrEnum):
    """Who may call: anybody who can connect, or who holds RUNNER_TOKEN (where one is set), or who
    holds that or a ticket that was given to somebody who does."""

    ANYONE = "anyone"
    TOKEN = "token"  # noqa: S105 - a word of the table
    TICKET = "ticket"


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something a request says outside of its body. `raises`: what a wrong one is answered."""

    place: Place
    name: str
    says: str
    schema: Schema = field(default_factory=lambda: TEXT)
    required: bool = False
    raises: Errors = (BadRequest,)


@dataclass(frozen=True, slots=True)
class Body:
    """What a request carries: JSON of a type of ours, or bytes of one of `media`."""

    type: Any = None
    media: tuple[str, ...] = (JSON,)
    says: str = ""
    required: bool = True
    raises: Errors = (BadRequest, BodyTooLarge, UnsupportedMediaType)

    @property
    def types(self) -> tuple[Any, ...]:
        """The type of its JSON, if it is that."""
        return () if self.type is None else (self.type,)


@dataclass(frozen=True, slots=True)
class Said:
    """A header of a response."""

    name: str
    says: str
    schema: Schema = field(default_factory=lambda: TEXT)


@dataclass(frozen=True, slots=True)
class Answer:
    """One status that is no failure: JSON of a type of ours, bytes of one of `media`, or both."""

    status: int
    says: str
    #: Several in a tuple: one of them.
    type: Any = None
    media: tuple[str, ...] = ()
    headers: tuple[Said, ...] = ()

    @property
    def types(self) -> tuple[Any, ...]:
        """The types of which its JSON is one."""
        if self.type is None:
            return ()
        return self.type if isinstance(self.type, tuple) else (self.type,)


@dataclass(frozen=True, slots=True)
class Contract:
    """All of one handler. `raises`: beside what its parameters, its body and its row of the route
    table have as their consequence."""

    gives: tuple[Answer, ...]
    parameters: tuple[Parameter, ...] = ()
    takes: Body | None = None
    raises: Errors = ()


H = TypeVar("H", bound=Callable[..., Any])
_OF: dict[Callable[..., Any], Contract] = {}


def offers(
    *gives: Answer,
    parameters: tuple[Parameter, ...] = (),
    takes: Body | None = None,
    raises: Errors = (),
) -> Callable[[H], H]:
    """Declares a handler's contract. The handler is what it was."""

    def declare(handler: H) -> H:
        _OF[handler] = Contract(gives, parameters, takes, raises)
        return handler

    return declare


def of(handler: Callable[..., Any]) -> Contract:
    """The contract of a handler. Every handler has one."""
    return _OF[handler]


_SESSION_SCHEMA: Schema = {"type": "string", "pattern": r"^[A-Za-z0-9._:-]{1,128}$"}
#: Of routes that are about a session.
SESSION = Parameter(
    "header",
    headers.SESSION,
    "The session. A VM is one session's: another is refused.",
    _SESSION_SCHEMA,
    required=True,
    raises=(InvalidSessionId, SessionUnbound, WorkspaceDirty),
)
#: Of routes that a session may be named to.
MAYBE_SESSION = Parameter(
    "header",
    headers.SESSION,
    "The session, if it is to be in one.",
    _SESSION_SCHEMA,
    raises=(InvalidSessionId, WorkspaceDirty),
)
EXPECTED = Parameter(
    "header",
    headers.EXPECTED_INCARNATION,
    "The incarnation that is meant; with another one nothing is changed.",
    {"type": "string", "pattern": r"^[\x21-\x7e]{1,128}$"},
    raises=(BadRequest, IncarnationMismatch),
)
SIDECAR_KEY = Parameter(
    "header", headers.SIDECAR_KEY, "The key of the archive's seal, in place of the VM's own."
)
FILE_PATH = Parameter(
    "path",
    "path",
    "Below the session's directory; canonical, and it may contain slashes.",
    required=True,
    raises=(InvalidPath,),
)
IF_NONE_MATCH = Parameter(
    "header", "If-None-Match", "Entity tags that the caller has, or `*`.", raises=()
)
#: On every response.
EVERYWHERE = (
    Said(headers.REQUEST_ID, "The request's id, as the log has it."),
    Said(headers.INCARNATION, "The incarnation of the workspace, once there is one."),
)
ETAG = Said("ETag", "The entity tag (RFC 9110 section 8.8.3).")
CACHE_CONTROL = Said("Cache-Control", "Whether it may be kept.")
