"""The text frames of a terminal's WebSocket, and the codes it is closed with.

Format: docs/terminal.md. Binary frames are the terminal's bytes, in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from runner import wire
from runner.errors import BadRequest, RunnerError

Characters = Annotated[int, Meta(ge=1, le=1000)]


class Resize(Struct, frozen=True, tag_field="type", tag="resize"):
    """From the client: its window has this size now."""

    cols: Characters
    rows: Characters


class Hangup(Struct, frozen=True, tag_field="type", tag="hangup"):
    """From the client: the shell is not needed any more."""


class Ack(Struct, frozen=True, tag_field="type", tag="ack"):
    """From a client that said `ack=1`: it has dealt with all bytes before this offset."""

    offset: Annotated[int, Meta(ge=0)]


class Ready(Struct, frozen=True, kw_only=True, tag_field="type", tag="ready"):
    """To the client, once and first. `offset` is that of the first byte that follows."""

    incarnation: str
    terminal: str
    offset: int
    #: The shell was there before this connection.
    resumed: bool


class Exit(Struct, frozen=True, kw_only=True, tag_field="type", tag="exit"):
    """To the client, last: the shell has ended."""

    code: int | None
    signal: str | None
    outcome: wire.Outcome


class CloseCode(IntEnum):
    """RFC 6455 section 7.4; 4000 and up are ours, after the HTTP status of the same meaning."""

    DONE = 1000
    GOING_AWAY = 1001
    TOO_BIG = 1009
    INTERNAL = 1011
    TAKEN_OVER = 4409
    INCARNATION_ENDED = 4412


@dataclass(frozen=True, slots=True)
class Closing:
    """Why a connection is closed: a last text frame, if there is one, and the code."""

    code: CloseCode
    frame: str | None = None
    #: Bytes that the client has not seen do not matter any more.
    at_once: bool = True


ClientFrame = Resize | Hangup | Ack
_decoder = msgspec.json.Decoder(ClientFrame)


def decode(text: str) -> ClientFrame:
    """A frame of the client's. Raises `BadRequest`."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise BadRequest("a text frame is not one of this terminal's") from None


def encode(frame: Struct) -> str:
    """A frame of ours."""
    return msgspec.json.encode(frame).decode()


def encode_error(error: RunnerError) -> str:
    """The one error shape of the wire, as an `error` frame."""
    return msgspec.json.encode({"type": "error"} | error.body()).decode()
