"""The transition table, row by row; tests/model explores what follows from it."""

from __future__ import annotations

import itertools

import pytest

from runner.session.lifecycle import HELD, TABLE, End, Operation, State, adopted, after, find

RESTING = {State.UNBOUND, State.FRESH, State.READY, State.DIRTY, State.TERMINATED}


def allowed(operation: Operation) -> set[State]:
    return {state for state in State if find(state, operation) is not None}


def test_no_state_has_two_rows_for_one_operation() -> None:
    for one, other in itertools.combinations(TABLE, 2):
        assert one.operation is not other.operation or not one.states & other.states


def test_every_operation_and_every_state_is_in_the_table() -> None:
    assert {row.operation for row in TABLE} == set(Operation)
    reached = {state for row in TABLE for state in row.ends.values() if state} | HELD
    assert reached | {State.UNBOUND} == set(State)


def test_what_holds_the_session_lets_nothing_else_start() -> None:
    for state in HELD:
        startable = {each for each in Operation if find(state, each)}
        assert startable <= {Operation.TERMINATE}, state
    assert set(State) == RESTING | HELD


def test_nothing_but_a_restore_may_use_a_dirty_workspace() -> None:
    usable = {each for each in Operation if find(State.DIRTY, each)}
    assert usable == {Operation.RESTORE, Operation.TERMINATE}


@pytest.mark.parametrize(
    "operation", [Operation.EXECUTE, Operation.CHECKPOINT, Operation.ATTACH, Operation.EDIT]
)
def test_what_uses_the_workspace_needs_a_provisioned_one(operation: Operation) -> None:
    assert allowed(operation) == {State.READY}


def test_only_a_boot_leads_to_ready_from_fresh() -> None:
    ways = {
        row.operation
        for row in TABLE
        if State.FRESH in row.states and State.READY in row.ends.values()
    }
    assert ways == {Operation.BOOT}


def test_a_failed_restore_leaves_a_fresh_session_or_a_dirty_one() -> None:
    row = find(State.READY, Operation.RESTORE)
    assert row is not None and row.during is State.RESTORING
    assert after(row, State.READY, End.DONE) is State.FRESH
    assert after(row, State.READY, End.WIPED) is State.FRESH
    assert after(row, State.READY, End.TORN) is State.DIRTY
    for origin in (State.FRESH, State.READY, State.DIRTY):
        assert after(row, origin, End.UNDONE) is origin


def test_a_torn_operation_leads_to_dirty_and_nowhere_else() -> None:
    for row in TABLE:
        assert row.ends.get(End.TORN, State.DIRTY) is State.DIRTY, row


def test_an_end_that_a_row_does_not_know_is_an_error() -> None:
    row = find(State.READY, Operation.CHECKPOINT)
    assert row is not None
    with pytest.raises(KeyError):
        after(row, State.READY, End.WIPED)


def test_a_killed_daemons_successor_finds_a_resting_state() -> None:
    assert {adopted(state) for state in State} <= RESTING
    assert adopted(State.RESTORING) is State.FRESH
    assert adopted(State.EXECUTING) is State.READY
    assert adopted(State.PROVISIONING) is State.FRESH
