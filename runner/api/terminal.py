"""GET /session/terminal: a WebSocket terminal. POST /session/terminal/ticket: leave to open one.

Whatever refuses an attach does so before the upgrade, as a plain HTTP error.
"""

from __future__ import annotations

import re

from aiohttp import web

from jail.profile import WindowSize
from runner.api import headers
from runner.api.contract import (
    COUNT,
    EXPECTED,
    FLAG,
    MAYBE_SESSION,
    SESSION,
    Answer,
    Parameter,
    Schema,
    offers,
)
from runner.api.conversation import FRAME_BYTES, converse
from runner.api.middleware import EVENT, TICKET
from runner.api.origin import refuse_foreign_page
from runner.api.responses import json_response
from runner.context import RUNNER
from runner.errors import (
    BadRequest,
    IncarnationMismatch,
    InsufficientStorage,
    JailFailed,
    NotFound,
    OriginRefused,
    Overloaded,
    SessionUnbound,
)
from runner.terminal.terminals import Asked
from runner.terminal.tickets import LIFETIME_S
from runner.wire import TerminalTicket

#: Seconds for a client to answer a close frame.
CLOSE_TIMEOUT = 2.0
SIDE_MAX, OFFSET_MAX = 1000, 1 << 60
_SIDE: Schema = {"type": "integer", "minimum": 1, "maximum": SIDE_MAX}
ORIGIN = Parameter("header", "Origin", "A browser's: the page that asks.", raises=(OriginRefused,))
INCARNATION = Parameter(
    "query",
    "incarnation",
    f"As {headers.EXPECTED_INCARNATION}, where no header can be sent.",
    raises=(BadRequest, IncarnationMismatch),
)
_VIEW = (
    Parameter("query", "terminal", "The terminal that is meant, by its id.", raises=(NotFound,)),
    Parameter("query", "offset", "Bytes of that terminal that the client has.", COUNT),
    Parameter("query", "cols", "Columns of the window; together with `rows`.", _SIDE),
    Parameter("query", "rows", "Rows of the window.", _SIDE),
    Parameter("query", "takeover", "`1`: in place of a client that is attached.", FLAG),
    Parameter("query", "ack", "`1`: the client says itself how far it got.", FLAG),
)


@offers(
    Answer(101, "A WebSocket (RFC 6455); its frames are described in docs/terminal.md."),
    parameters=(ORIGIN, MAYBE_SESSION, EXPECTED, INCARNATION, *_VIEW),
    raises=(BadRequest, SessionUnbound, JailFailed, Overloaded),
)
async def get(request: web.Request) -> web.StreamResponse:
    """101 once a shell runs on a provisioned incarnation."""
    runner = request.app[RUNNER]
    refuse_foreign_page(request, runner.settings)
    # Pings carry offsets, so answers to them are ours to read. Compression would keep a window of
    # memory per client for bytes that a terminal sends in small pieces.
    ws = web.WebSocketResponse(
        timeout=CLOSE_TIMEOUT, autoping=False, compress=False, max_msg_size=FRAME_BYTES
    )
    if not ws.can_prepare(request).ok:
        raise BadRequest("this route takes a WebSocket upgrade (RFC 6455)", field="Upgrade")
    acks = _flag(request, "ack")
    attachment = await runner.terminals.attach(_asked(request))
    try:
        await ws.prepare(request)
        request[EVENT]["closed"] = await converse(request, ws, attachment, acks=acks)
    finally:
        attachment.leave()
    return ws


@offers(
    Answer(201, "The ticket.", TerminalTicket),
    parameters=(ORIGIN, SESSION, EXPECTED, INCARNATION),
    raises=(Overloaded, InsufficientStorage),
)
async def issue_ticket(request: web.Request) -> web.Response:
    """A ticket for this session and the incarnation it has; binds as any first request does."""
    runner = request.app[RUNNER]
    refuse_foreign_page(request, runner.settings)
    session = runner.session
    session_id = headers.required_session_id(request)
    session.admit(session_id, expected_incarnation=_expected(request))
    session.refuse_dirty()
    assert session.incarnation is not None
    live = runner.terminals.live
    return json_response(
        TerminalTicket(
            ticket=runner.terminals.tickets.issue(
                session=session_id, incarnation=session.incarnation
            ),
            expires_in=int(LIFETIME_S),
            incarnation=session.incarnation,
            terminal=live.id if live is not None else None,
            attached=live is not None and live.is_attached,
        ),
        status=201,
    )


def _asked(request: web.Request) -> Asked:
    ticket = request.get(TICKET)
    expected = _expected(request)
    if ticket is None:
        session = headers.required_session_id(request)
    else:
        session = ticket.session
        if headers.session_id(request) not in (None, session):
            raise BadRequest("the ticket is of another session", field=headers.SESSION)
        if expected not in (None, ticket.incarnation):
            raise BadRequest("the ticket is of another incarnation", field="incarnation")
        expected = ticket.incarnation
    columns = _number(request, "cols", 1, SIDE_MAX)
    rows = _number(request, "rows", 1, SIDE_MAX)
    offset = _number(request, "offset", 0, OFFSET_MAX)
    name = _parameter(request, "terminal")
    if offset is not None and name is None:
        raise BadRequest("it needs the terminal that it is an offset of", field="offset")
    return Asked(
        session=session,
        expected_incarnation=expected,
        terminal=name,
        offset=offset,
        takeover=_flag(request, "takeover"),
        size=WindowSize(columns, rows) if columns and rows else None,
    )


def _expected(request: web.Request) -> str | None:
    """From the header, or from the query where no header can be sent."""
    said = headers.expected_incarnation(request)
    asked = _parameter(request, "incarnation")
    if said is not None and asked is not None and said != asked:
        raise BadRequest("header and query name two incarnations", field="incarnation")
    return said if said is not None else asked


def _parameter(request: web.Request, name: str) -> str | None:
    values = request.query.getall(name, [])
    if len(values) > 1:
        raise BadRequest("it was sent more than once", field=name, reason="repeated")
    return values[0] if values else None


def _flag(request: web.Request, name: str) -> bool:
    return _number(request, name, 0, 1) == 1


def _number(request: web.Request, name: str, low: int, high: int) -> int | None:
    text = _parameter(request, name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
        raise BadRequest(f"it takes a whole number from {low} to {high}", field=name)
    return int(text)
