"""The contract is whole: every route, every body, every error code, every reference."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from runner.app import ROUTES, Access
from runner.execution.limits import ASKABLE
from runner.openapi import document
from tests.harness import Daemon
from tests.unit.test_errors import CLASSES


@pytest.fixture(scope="module")
def contract() -> dict[str, Any]:
    return document(ROUTES)


def test_every_route_is_in_it_and_says_what_it_does(contract: dict[str, Any]) -> None:
    told = {(m.upper(), path) for path, each in contract["paths"].items() for m in each}
    assert told == {(row.method, row.path.replace(":.+}", "}")) for row in ROUTES}
    assert all(op["summary"] for each in contract["paths"].values() for op in each.values())


def test_every_reference_leads_somewhere(contract: dict[str, Any]) -> None:
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(contract)))
    assert references
    assert references <= contract["components"]["schemas"].keys()


def test_every_error_code_is_in_it(contract: dict[str, Any]) -> None:
    codes = contract["components"]["schemas"]["Error"]["properties"]["error"]["enum"]
    assert {each.code for each in CLASSES if hasattr(each, "code")} == set(codes)


def test_every_operation_has_a_name_of_its_own(contract: dict[str, Any]) -> None:
    names = [op["operationId"] for each in contract["paths"].values() for op in each.values()]
    assert len(set(names)) == len(names) == len(ROUTES)


def test_who_may_call_is_in_it(contract: dict[str, Any]) -> None:
    schemes = contract["components"]["securitySchemes"].keys()
    for row in ROUTES:
        operation = contract["paths"][row.path.replace(":.+}", "}")][row.method.lower()]
        shown = {name for each in operation["security"] for name in each}
        assert shown <= schemes
        assert bool(shown) == (row.access is not Access.ANYONE) == ("401" in operation["responses"])


def test_a_limit_that_may_be_asked_for_says_its_unit(contract: dict[str, Any]) -> None:
    fields = contract["components"]["schemas"]["ExecuteRequest"]["properties"]
    unit = {"timeout": "ms", "cpu_time": "ms", "memory_limit": "bytes"}
    for stage in ("run", "compile"):
        for limit in ASKABLE:
            assert unit[limit] in fields[f"{stage}_{limit}"]["description"]


async def test_the_daemon_serves_it(daemon: Daemon) -> None:
    reply = await daemon.get("/openapi.json")
    assert reply.status == 200
    assert reply.json == json.loads(json.dumps(document(ROUTES)))
