"""The contract is whole: every route, every body, every error code, every reference."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from runner.app import ROUTES
from runner.openapi import BODIES, MEDIA, document
from tests.harness import Daemon
from tests.unit.test_errors import CLASSES


@pytest.fixture(scope="module")
def contract() -> dict[str, Any]:
    return document(ROUTES)


def test_every_route_is_in_it_and_says_what_it_does(contract: dict[str, Any]) -> None:
    told = {(m.upper(), path) for path, each in contract["paths"].items() for m in each}
    assert told == {(row.method, row.path.replace(":.+}", "}")) for row in ROUTES}
    assert all(op["summary"] for each in contract["paths"].values() for op in each.values())


def test_no_body_is_told_of_a_route_that_is_not_there() -> None:
    assert (BODIES.keys() | MEDIA.keys()) <= {(row.method, row.path) for row in ROUTES}


def test_every_reference_leads_somewhere(contract: dict[str, Any]) -> None:
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(contract)))
    assert references
    assert references <= contract["components"]["schemas"].keys()


def test_every_error_code_is_in_it(contract: dict[str, Any]) -> None:
    codes = contract["components"]["schemas"]["Error"]["properties"]["error"]["enum"]
    assert {each.code for each in CLASSES if hasattr(each, "code")} == set(codes)


async def test_the_daemon_serves_it(daemon: Daemon) -> None:
    reply = await daemon.get("/openapi.json")
    assert reply.status == 200
    assert reply.json == json.loads(json.dumps(document(ROUTES)))
