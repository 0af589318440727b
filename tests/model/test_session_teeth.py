"""Each guard of our lifecycle is needed: without it the checker finds a short way to harm."""

from __future__ import annotations

from dataclasses import fields

import pytest

from runner.session import lifecycle
from runner.session.lifecycle import TABLE, End, Operation, State
from tests.figures import Say
from tests.model.checker import Report, check
from tests.model.session_hold import Guards
from tests.model.session_model import session
from tests.model.session_world import World
from tests.model.tables import allowing, ending

pytestmark = pytest.mark.long

#: States in a trace, the initial one included. The longest way to harm is not longer.
SHORT = 12

FORBIDDEN = [
    (operation, state)
    for operation in Operation
    for state in State
    if lifecycle.find(state, operation) is None
]

#: An end is looked up by operation, but DIED by the state that was held: the first row counts.
ENDS = list(
    dict.fromkeys(
        (row.operation, end)
        for index, row in enumerate(TABLE)
        for end in row.ends
        if end is not End.DIED or all(row.during is not other.during for other in TABLE[:index])
    )
)


@pytest.mark.parametrize(("operation", "state"), FORBIDDEN)
def test_what_the_table_forbids_would_do_harm(
    operation: Operation, state: State, monkeypatch: pytest.MonkeyPatch, say: Say
) -> None:
    monkeypatch.setattr(lifecycle, "TABLE", allowing(operation, state))
    report = check(session())
    say(f"{operation} in {state}: {_harm(report)}")
    assert 0 < len(report.trace) <= SHORT


@pytest.mark.parametrize(("operation", "end"), ENDS)
def test_an_end_that_led_elsewhere_would_do_harm(
    operation: Operation, end: End, monkeypatch: pytest.MonkeyPatch, say: Say
) -> None:
    row = next(row for row in TABLE if row.operation is operation and end in row.ends)
    right = {row.ends[end]} if row.ends[end] is not None else row.states
    wrong = [state for state in State if {state} != right]
    longest = 0
    for state in wrong:
        monkeypatch.setattr(lifecycle, "TABLE", ending(operation, end, state))
        report = check(session())
        assert 0 < len(report.trace) <= SHORT, state
        longest = max(longest, len(report.trace))
    say(f"{operation} {end} to {len(wrong)} other states: each harms in at most {longest} states")


@pytest.mark.parametrize("guard", [guard.name for guard in fields(Guards)])
def test_what_guards_the_session_besides_the_table_is_needed(guard: str, say: Say) -> None:
    report = check(session(Guards(**{guard: False})))
    say(f"without {guard}: {_harm(report)}")
    assert 0 < len(report.trace) <= SHORT


def _harm(report: Report[World]) -> str:
    return f"{report.violated} in {len(report.trace)} states: {' '.join(report.actions)}"
