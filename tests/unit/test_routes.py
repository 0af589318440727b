"""THE route table: each row is served at the root and below the compatible prefix, and is whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from runner import app as wiring
from runner.app import COMPATIBLE_PREFIX, ROUTES, Access, Route
from runner.session.lifecycle import State
from runner.settings import Settings

#: What callers of this family count on, whatever else is served.
REQUIRED = {
    ("GET", "/health"),
    ("POST", "/execute"),
    ("GET", "/session/checkpoint"),
    ("POST", "/session/restore"),
    ("GET", "/session/files"),
    ("GET", "/session/files/{path:.+}"),
    ("GET", "/runtimes"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
}


class _Runner:
    """As much of a runner as the wiring looks at."""

    settings = Settings()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"wiring asked for {name}")


@pytest.fixture
def app() -> web.Application:
    return wiring.make_app(cast(Any, _Runner()))


def test_every_row_is_served_twice(app: web.Application) -> None:
    served = {
        (route.method, route.resource.canonical) for route in app.router.routes() if route.resource
    }
    expected = {
        (row.method, prefix + row.path.replace(":.+}", "}"))
        for row in ROUTES
        for prefix in ("", COMPATIBLE_PREFIX)
    }
    assert expected == served


def test_the_table_has_the_documented_routes_once() -> None:
    counted = Counter((row.method, row.path) for row in ROUTES)
    assert set(counted) >= REQUIRED
    assert set(counted.values()) == {1}


def test_head_is_served_of_health_alone(app: web.Application) -> None:
    served = {
        route.resource.canonical
        for route in app.router.routes()
        if route.method == "HEAD" and route.resource
    }
    assert served == {"/health", f"{COMPATIBLE_PREFIX}/health"}


def test_only_health_and_the_consoles_page_are_open_to_anyone() -> None:
    opened = {row.path for row in ROUTES if row.access is Access.ANYONE}
    # The console's page says nothing of this VM; what it does goes over the other routes.
    assert {path for path in opened if not path.startswith("/console")} == {"/health"}


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_a_handler_is_documented_and_lives_in_its_room(row: Route) -> None:
    assert row.handler.__doc__
    assert row.handler.__module__.startswith("runner.api.")
    path = Path(*row.handler.__module__.split(".")).with_suffix(".py")
    assert (Path(__file__).resolve().parents[2] / path).is_file()


def test_what_a_row_asks_of_the_session_it_may_ask_in_some_state() -> None:
    for row in ROUTES:
        assert bool(row.states) == (row.operation is not None), row
        assert row.states <= set(State)
