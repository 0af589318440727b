"""Whether the contract has a reply: its status, error, media type, headers and body."""

from __future__ import annotations

import functools
import re
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from runner.api import contract
from runner.api.contract import JSON
from runner.app import COMPATIBLE_PREFIX, ROUTES, Route
from runner.openapi import document, refusals
from tests.client import Reply

#: HTTP's own, and what tells browsers and proxies how to behave.
UNTOLD = {
    *("connection", "content-length", "content-type", "date", "server", "transfer-encoding"),
    *("content-security-policy", "cross-origin-opener-policy", "cross-origin-resource-policy"),
    *("referrer-policy", "x-content-type-options", "cache-control", "x-accel-buffering"),
}


def check_reply(method: str, path: str, reply: Reply) -> None:
    """Fails if the route that `method` and `path` mean does not declare this reply."""
    row = _row(method, path.partition("?")[0])
    if row is None:
        return
    status, headers, body = reply.status, reply.headers, reply.body
    told = _told()["paths"][row.path.replace(":.+}", "}")][method.lower()]["responses"]
    where = f"{method} {row.path} {status}"
    assert str(status) in told, f"{where}: {body[:200]!r}"
    media = headers.get("Content-Type", "").partition(";")[0]
    declared = told[str(status)].get("content", {})
    assert not body or any(fnmatchcase(media, each) for each in declared), f"{where}: {media}"
    names = {name.lower() for name in headers} - UNTOLD
    assert names <= {name.lower() for name in told[str(status)]["headers"]}, f"{where}: {names}"
    _check_body(row, where, status=status, media=media, body=body)


def _check_body(row: Route, where: str, *, status: int, media: str, body: bytes) -> None:
    if media != JSON or row.method == "HEAD":  # RFC 9110 section 9.3.2: the headers alone
        return
    answers = [each for each in contract.of(row.handler).gives if each.status == status]
    if not answers:
        code = msgspec.json.decode(body)["error"]
        assert code in {kind.code for kind in refusals(row)}, f"{where}: {code}"
    elif answers[0].types:
        assert any(_is_of(body, kind) for kind in answers[0].types), f"{where}: {body[:200]!r}"


def _is_of(body: bytes, kind: object) -> bool:
    try:
        msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        return False
    return True


@functools.cache
def _told() -> dict[str, Any]:
    return document(ROUTES)


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], Route]]:
    return [
        (re.compile(f"({COMPATIBLE_PREFIX})?{re.sub('{.*}', '.+', row.path)}", re.DOTALL), row)
        for row in ROUTES
    ]


def _row(method: str, path: str) -> Route | None:
    for pattern, row in _patterns():
        if row.method == method and pattern.fullmatch(path):
            return row
    return None
