"""Figures in the test log: what was explored and measured is part of what was proved.

A pytest plugin. Tests may run in several processes; each hands its figures to the one that prints.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

Say = Callable[[str], None]

_FIGURES = pytest.StashKey[list[str]]()
_OUTPUT = "figures"


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Say:
    """Adds a line to the section "figures" at the end of the log."""
    return request.config.stash.setdefault(_FIGURES, []).append


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = session.config.stash.get(_FIGURES, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    output = getattr(node, "workeroutput", {})
    config: pytest.Config = node.config  # type: ignore[attr-defined]
    config.stash.setdefault(_FIGURES, []).extend(output.get(_OUTPUT, []))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash.get(_FIGURES, [])
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
