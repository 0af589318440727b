"""Figures of the model checks, in the test log: what was explored is part of what was proved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.checker import Report, check
from tests.model.session_model import session
from tests.model.session_world import World

_FIGURES = pytest.StashKey[list[str]]()

Say = Callable[[str], None]


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Say:
    """Adds a line to the section "model figures" at the end of the log."""
    return request.config.stash.setdefault(_FIGURES, []).append


@pytest.fixture(scope="session")
def explored() -> Report[World]:
    """Our lifecycle, explored once for all tests that look at the whole of it."""
    return check(session())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash.get(_FIGURES, [])
    if lines:
        terminalreporter.section("model figures")
        for line in lines:
            terminalreporter.write_line(line)
