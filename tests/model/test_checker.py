"""The checker itself, on models whose figures can be counted by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.checker import Model, StateSpaceError, check


def counter(limit: int, *, never: int | None = None) -> Model[int]:
    def successors(value: int) -> Iterator[tuple[str, int]]:
        if value < limit:
            yield "Add", value + 1
        if value * 2 <= limit:
            yield "Double", value * 2

    return Model(
        initial=(1,), successors=successors, invariants={"Never": lambda value: value != never}
    )


def test_every_state_is_counted_once_and_the_initial_one_is_level_one() -> None:
    report = check(counter(8))
    # 1 | 2 | 3 4 | 5 6 8 | 7
    assert (report.distinct, report.depth) == (8, 5)
    assert report.holds
    assert report.taken == {"Add": 7, "Double": 4}


def test_the_trace_of_a_violation_is_a_shortest_one() -> None:
    report = check(counter(8, never=8))
    assert report.violated == "Never"
    assert [step.state for step in report.trace] == [1, 2, 4, 8]
    assert report.trace[0].action == "Init"
    assert report.actions[1:] == ("Double", "Double")


def test_a_broken_initial_state_is_a_trace_of_one() -> None:
    report = check(counter(8, never=1))
    assert [step.state for step in report.trace] == [1]


def test_a_model_that_never_ends_is_given_up() -> None:
    with pytest.raises(StateSpaceError):
        check(counter(10_000), at_most=100)
