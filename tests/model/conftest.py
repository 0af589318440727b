"""Figures of the model checks, in the test log: what was explored is part of what was proved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_FIGURES = pytest.StashKey[list[str]]()

Say = Callable[[str], None]


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Say:
    """Adds a line to the section "model figures" at the end of the log."""
    return request.config.stash.setdefault(_FIGURES, []).append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash.get(_FIGURES, [])
    if lines:
        terminalreporter.section("model figures")
        for line in lines:
            terminalreporter.write_line(line)
