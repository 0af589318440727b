"""Who may open a terminal: the token, a ticket, and the page that asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.harness import Daemon, Reply
from tests.leftovers import TEST_UID
from tests.terminals import attached, refused

Start = Callable[..., Awaitable[Daemon]]

SESSION = "accessed"
TOKEN = "a-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
LOCKED = {"RUNNER_TOKEN": TOKEN, "RUNNER_SESSION_UID": str(TEST_UID)}


async def issue(daemon: Daemon, *, session: str = SESSION, **headers: str) -> Reply:
    return await daemon.request(
        "POST", "/session/terminal/ticket", session=session, headers=BEARER | headers
    )


async def test_a_ticket_opens_one_terminal_once(start: Start) -> None:
    daemon = await start(**LOCKED)
    assert (await refused(daemon, SESSION))[0] == 401
    assert (await daemon.request("POST", "/session/terminal/ticket", session=SESSION)).status == 401
    reply = await issue(daemon)
    assert reply.status == 201
    ticket = reply.json["ticket"]
    assert reply.json == {
        "ticket": ticket,
        "expires_in": 30,
        "incarnation": reply.incarnation,
        "terminal": None,
        "attached": False,
    }
    # Neither header: session and incarnation are the ticket's.
    async with attached(daemon, None, ticket=ticket) as shell:
        assert shell.ready["incarnation"] == reply.incarnation
        now = (await issue(daemon)).json
        assert (now["terminal"], now["attached"]) == (shell.id, True)
    for headers in ({}, BEARER):
        status, body = await refused(daemon, None, ticket=ticket, headers=headers)
        assert (status, body["error"], body["reason"]) == (401, "unauthorized", "ticket")
    async with attached(daemon, SESSION, headers=BEARER) as shell:
        assert await shell.run("echo in") == "in\n"


async def test_a_ticket_opens_nothing_else(start: Start) -> None:
    daemon = await start(**LOCKED)
    for method, path in (
        ("GET", "/session/files"),
        ("POST", "/session/terminal/ticket"),
        ("POST", "/execute"),
        ("GET", "/session/checkpoint"),
        ("GET", "/session/terminal/"),
    ):
        ticket = (await issue(daemon)).json["ticket"]
        reply = await daemon.request(method, f"{path}?ticket={ticket}", session=SESSION)
        assert reply.status == 401, path


async def test_a_ticket_is_of_one_session_and_one_incarnation(start: Start) -> None:
    daemon = await start(**LOCKED)
    ticket = (await issue(daemon)).json["ticket"]
    status, body = await refused(daemon, "another", ticket=ticket)
    assert (status, body["field"]) == (400, "X-Runtime-Session-Id")
    ticket = (await issue(daemon)).json["ticket"]
    # The VM is given to the same session anew: what the ticket meant is no more.
    hook = "/aws/lambda-microvms/runtime/v1/terminate"
    assert (await daemon.request("POST", hook, headers=BEARER)).status == 200
    assert (await issue(daemon)).status == 201
    status, body = await refused(daemon, None, ticket=ticket)
    assert (status, body["error"]) == (412, "incarnation_mismatch")
    stale = await issue(daemon, **{"X-Expected-Incarnation": "inc_stale"})
    assert stale.status == 412


ORIGINS = [
    ("http://{host}", 400),
    ("http://localhost:1", 403),
    ("https://console.example.org", 400),
    ("http://console.example.org", 403),
    ("https://evil.example", 403),
    ("null", 403),
    ("http://{host}.evil.example", 403),
]


async def test_only_pages_of_this_host_or_of_an_allowed_origin_may_ask(start: Start) -> None:
    """400: past the check, and refused for not being an upgrade."""
    daemon = await start(RUNNER_ALLOWED_ORIGINS="https://console.example.org", **LOCKED)
    host = daemon.url.removeprefix("http://")
    for origin, status in ORIGINS:
        headers = BEARER | {"Origin": origin.format(host=host)}
        reply = await daemon.get("/session/terminal", session=SESSION, headers=headers)
        assert reply.status == status, origin
        if status == 403:
            assert reply.json["error"] == "origin_refused"


@pytest.mark.parametrize(("token", "status"), [(None, 403), (TOKEN, 400)])
async def test_a_rebound_name_is_no_page_of_ours_where_there_is_no_token(
    start: Start, token: str | None, status: int
) -> None:
    daemon = await start(**(LOCKED if token else {}))
    headers = {"Host": "evil.example:80", "Origin": "http://evil.example:80"}
    reply = await daemon.get("/session/terminal", session=SESSION, headers=BEARER | headers)
    assert reply.status == status
