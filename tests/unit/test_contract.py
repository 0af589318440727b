"""What a handler declares is what it does: what it reads, takes and answers, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from runner.api import contract, headers, middleware
from runner.app import ROUTES, Access, Route
from runner.openapi import document
from tests.client import Reply
from tests.contract import check_reply
from tests.handlers import UnreadableError, found_in

#: HTTP's own: of the body (415 says so) and of the address. No route means more by them.
OF_HTTP = {("header", "Content-Encoding"), ("header", "Host")}
rows = pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")


@rows
def test_what_a_handler_reads_of_its_request_is_declared(row: Route) -> None:
    declared = [(each.place, each.name) for each in contract.of(row.handler).parameters]
    assert found_in(row.handler).read - OF_HTTP == set(declared)
    assert len(set(declared)) == len(declared)


@rows
def test_the_names_in_a_path_are_declared(row: Route) -> None:
    declared = contract.of(row.handler).parameters
    assert set(re.findall(r"\{(\w+)", row.path)) == {
        each.name for each in declared if each.place == "path" and each.required
    }


@rows
def test_a_handler_answers_what_it_declares(row: Route) -> None:
    statuses = [answer.status for answer in contract.of(row.handler).gives]
    assert found_in(row.handler).statuses == set(statuses)
    assert len(set(statuses)) == len(statuses)


@rows
def test_a_handler_takes_the_body_it_declares(row: Route) -> None:
    takes = contract.of(row.handler).takes
    found = found_in(row.handler)
    assert found.takes_body == (takes is not None)
    # Where it looks at the media type at all.
    assert takes is None or found.media in (set(), set(takes.media))


def test_around_the_handlers_only_the_authority_is_read() -> None:
    around = (middleware.wide_event, middleware.errors, middleware.authority)
    schemes = document(ROUTES)["components"]["securitySchemes"].values()
    declared = {
        ("query", each["name"]) if each["type"] == "apiKey" else ("header", "Authorization")
        for each in schemes
    }
    assert set().union(*(found_in(each).read for each in around)) == declared
    assert {row.path for row in ROUTES if row.access is Access.TICKET} == {"/session/terminal"}


async def _plain(request: web.Request) -> bool:
    request.headers.get("X-A")
    request.query["b"]
    return "X-C" in request.headers


async def _by_a_helper(request: web.Request) -> None:
    headers.single(request, headers.SESSION)
    headers.flag(request, name="X-D")


async def _within(request: web.Request) -> Callable[[], Any]:
    return lambda: request.match_info.get("e")


@pytest.mark.parametrize(
    ("handler", "read"),
    [
        (_plain, {("header", "X-A"), ("query", "b"), ("header", "X-C")}),
        (_by_a_helper, {("header", headers.SESSION), ("header", "X-D")}),
        (_within, {("path", "e")}),
    ],
)
def test_every_way_to_read_is_seen(handler: Callable[..., Any], read: set[tuple[str, str]]) -> None:
    assert found_in(handler, package="").read >= read


async def _computed(request: web.Request) -> None:
    request.headers.get("X-" + "A")


async def _handed_on(request: web.Request) -> dict[str, str]:
    return dict(request.headers)


async def _by_another_way(request: web.Request) -> str:
    return request.query_string


@pytest.mark.parametrize("handler", [_computed, _handed_on, _by_another_way])
def test_what_cannot_be_followed_is_an_error(handler: Callable[..., Any]) -> None:
    with pytest.raises(UnreadableError):
        found_in(handler)


_JSON = {"Content-Type": "application/json; charset=utf-8"}
_ALIVE = b'{"status":"healthy","level":"alive"}'


def test_a_reply_that_is_declared_is_let_by() -> None:
    check_reply("GET", "/health?level=alive", Reply(200, _JSON, _ALIVE))
    check_reply("GET", "/health", Reply(400, _JSON, b'{"error":"invalid_request"}'))


@pytest.mark.parametrize(
    "reply",
    [
        Reply(418, _JSON, _ALIVE),
        Reply(200, {"Content-Type": "text/html"}, _ALIVE),
        Reply(200, {**_JSON, "X-New": "1"}, _ALIVE),
        Reply(200, _JSON, b'{"status":1}'),
        Reply(400, _JSON, b'{"error":"overloaded"}'),
    ],
    ids=["status", "media type", "header", "body", "error"],
)
def test_a_reply_that_is_not_declared_is_found(reply: Reply) -> None:
    with pytest.raises(AssertionError):
        check_reply("GET", "/health", reply)
