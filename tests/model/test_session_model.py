"""Our lifecycle table, explored whole; and that nothing of it is proved in vain."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

import pytest

from runner.session import lifecycle
from runner.session.lifecycle import Operation, State
from tests.figures import Say
from tests.model.checker import Report, check
from tests.model.session_model import session
from tests.model.session_world import CLIENTS, INCARNATIONS, INVARIANTS, NONE, World
from tests.model.tables import forbidding

#: What befalls a session, or ends it; a way back to ready has to do without.
NOT_A_WAY_BACK = {"Bind", "Terminate", "TerminateUnanswered", "VmLost", "VolumeLost", "Die"}


def test_every_invariant_holds_in_every_reachable_state(explored: Report[World], say: Say) -> None:
    say(
        f"session, {CLIENTS} clients, {INCARNATIONS} incarnations: {explored.distinct} distinct "
        f"states, depth {explored.depth}, {len(INVARIANTS)} invariants hold"
    )
    assert explored.violated is None, explored.trace


def test_every_permission_of_the_table_is_used(explored: Report[World]) -> None:
    begun = {(hold.operation, hold.origin) for world in explored.states for hold in world.vm.holds}
    assert begun == {
        (row.operation, state)
        for row in lifecycle.TABLE
        for state in row.states
        if row.during is not None
    }
    assert {world.vm.state for world in explored.states} == set(State)


def test_rows_that_hold_the_session_alike_are_adopted_alike() -> None:
    """A daemon that starts sees the state and not the operation that died in it."""
    for state in lifecycle.HELD:
        rows = [row for row in lifecycle.TABLE if row.during is state]
        assert len({row.ends[lifecycle.End.DIED] for row in rows}) == 1


@pytest.mark.parametrize("operation", [Operation.BOOT, Operation.RESTORE])
def test_who_was_not_answered_asks_again_and_finds_what_is_there(
    operation: Operation, explored: Report[World], say: Say
) -> None:
    successors = session().successors
    repeated = 0
    for world in explored.states:
        if not world.vm.alive or all(hold.operation is not operation for hold in world.vm.holds):
            continue
        for action, unanswered in successors(world):
            if action == "DoneUnanswered":
                repeated += 1
                assert _asked_again(unanswered, operation).vm == unanswered.vm
    say(f"session, {operation} repeated after a lost reply: {repeated} cases, each to the same end")
    assert repeated


def test_a_bound_session_can_always_be_brought_back_to_ready(explored: Report[World]) -> None:
    assert not _dead_ends(explored.states)


def test_a_table_that_never_boots_is_a_dead_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "TABLE", forbidding(Operation.BOOT, State.FRESH))
    assert _dead_ends(check(session()).states)


def _asked_again(world: World, operation: Operation) -> World:
    """The world after the client has repeated `operation` and nothing has gone wrong."""
    well = ["AlreadyDone", "Done", "RunHooks", "Exchange", "BodyBegins"]
    well.append(f"Begin{operation.title()}")
    client = next(index for index, one in enumerate(world.clients) if one.unanswered is operation)
    successors = session().successors
    for _ in range(len(well)):
        steps = {
            action: reached
            for action, reached in successors(world)
            # Of two clients the one that repeats, and the other stays as it is.
            if _others(reached, client) == _others(world, client)
            and all(hold.client == client for hold in reached.vm.holds)
        }
        taken = next((action for action in well if action in steps), None)
        assert taken is not None, f"{operation} cannot be repeated from {world}"
        world = steps[taken]
        if taken in {"AlreadyDone", "Done"}:
            return world
    raise AssertionError("it never ends")


def _others(world: World, client: int) -> tuple[object, ...]:
    return world.clients[:client] + world.clients[client + 1 :]


def _dead_ends(states: Iterable[World]) -> set[World]:
    """Worlds with a bound session from which requests and restarts do not lead to ready."""
    bound = {world for world in states if world.vm.incarnation != NONE}
    before: dict[World, list[World]] = defaultdict(list)
    successors = session().successors
    for world in bound:
        for action, reached in successors(world):
            if action not in NOT_A_WAY_BACK:
                before[reached].append(world)
    arrived = {world for world in bound if world.vm.alive and world.vm.state is State.READY}
    waiting = deque(arrived)
    while waiting:
        for world in before[waiting.popleft()]:
            if world not in arrived:
                arrived.add(world)
                waiting.append(world)
    return bound - arrived
