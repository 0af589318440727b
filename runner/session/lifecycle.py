"""THE transition table: which operation is allowed in which state, and where it leads.

Pure. `session.Session` moves by this table and by nothing else; the checker in tests/model explores
it; docs/lifecycle.md is made from it.

    unbound → fresh → provisioning → ready ⇄ executing | editing | checkpointing | terminal
                ↑                      ↓
            restoring  ←———————  dirty(reason)              any → terminated

A restore that commits leads to `fresh` too: the files are the checkpoint's, but nothing vouches yet
that this incarnation was provisioned, so the idempotent boot runs again (at once, under the same
hold of the session).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where the session of this VM is."""

    UNBOUND = "unbound"
    FRESH = "fresh"
    PROVISIONING = "provisioning"
    READY = "ready"
    EXECUTING = "executing"
    EDITING = "editing"
    CHECKPOINTING = "checkpointing"
    TERMINAL = "terminal"
    RESTORING = "restoring"
    DIRTY = "dirty"
    TERMINATED = "terminated"


class Operation(StrEnum):
    """What may be asked of the session."""

    BIND = "bind"
    BOOT = "boot"
    EXECUTE = "execute"
    EDIT = "edit"
    CHECKPOINT = "checkpoint"
    ATTACH = "attach"
    RESTORE = "restore"
    TERMINATE = "terminate"


class End(StrEnum):
    """How an operation ended.

    `DONE`     as asked.
    `UNDONE`   it failed and the workspace is what it was.
    `WIPED`    it failed and the workspace and its metadata are empty.
    `TORN`     it failed and nobody knows what the workspace is.
    `DIED`     the daemon died in the middle; where the next daemon on this disk picks up.
    """

    DONE = "done"
    UNDONE = "undone"
    WIPED = "wiped"
    TORN = "torn"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class Row:
    """From each of `states`, `operation` holds the session as `during` and ends as `ends` says.

    `during` None: it is one atomic step. A state of None in `ends` is the state it came from.
    """

    operation: Operation
    states: frozenset[State]
    during: State | None
    ends: dict[End, State | None]


def _row(
    operation: Operation,
    states: set[State],
    during: State | None,
    ends: dict[End, State | None],
) -> Row:
    return Row(operation, frozenset(states), during, ends)


TABLE: tuple[Row, ...] = (
    # The first valid request that names a session binds the VM to it until it is terminated. What a
    # terminated VM held is wiped, so the next binding is a new incarnation of nothing.
    _row(Operation.BIND, {State.UNBOUND, State.TERMINATED}, None, {End.DONE: State.FRESH}),
    # Booting a ready session is a no-op and never gets here: a boot cannot demote it.
    _row(
        Operation.BOOT,
        {State.FRESH},
        State.PROVISIONING,
        {End.DONE: State.READY, End.UNDONE: State.FRESH, End.DIED: State.FRESH},
    ),
    # TORN: priming stopped between two files, or the workspace itself was not there.
    # DIED: jailed code may have stopped anywhere, which is its own affair; a daemon that dies while
    # *it* was placing files has noted the session as dirty before the first of them.
    _row(
        Operation.EXECUTE,
        {State.READY},
        State.EXECUTING,
        {
            End.DONE: State.READY,
            End.UNDONE: State.READY,
            End.TORN: State.DIRTY,
            End.DIED: State.READY,
        },
    ),
    # One file put or deleted from outside; atomic by rename, so there is no half of it.
    _row(
        Operation.EDIT,
        {State.READY},
        State.EDITING,
        {
            End.DONE: State.READY,
            End.UNDONE: State.READY,
            End.TORN: State.DIRTY,
            End.DIED: State.READY,
        },
    ),
    _row(
        Operation.CHECKPOINT,
        {State.READY},
        State.CHECKPOINTING,
        {
            End.DONE: State.READY,
            End.UNDONE: State.READY,
            End.TORN: State.DIRTY,
            End.DIED: State.READY,
        },
    ),
    _row(
        Operation.ATTACH,
        {State.READY},
        State.TERMINAL,
        {
            End.DONE: State.READY,
            End.UNDONE: State.READY,
            End.TORN: State.DIRTY,
            End.DIED: State.READY,
        },
    ),
    # UNDONE is only for what is refused before the first byte of the body is read. DIED is a daemon
    # that dies after it noted that it had begun: one that dies before has changed nothing.
    _row(
        Operation.RESTORE,
        {State.FRESH, State.READY, State.DIRTY},
        State.RESTORING,
        {
            End.DONE: State.FRESH,
            End.UNDONE: None,
            End.WIPED: State.FRESH,
            End.TORN: State.DIRTY,
            End.DIED: State.FRESH,
        },
    ),
    # Whoever holds the session is ended first, so no state is too busy for it. TORN: not everything
    # could be wiped. On an unbound VM there is nothing of anybody's that a wipe could leave half.
    _row(
        Operation.TERMINATE,
        set(State) - {State.TERMINATED, State.UNBOUND},
        None,
        {End.DONE: State.TERMINATED, End.TORN: State.DIRTY},
    ),
    _row(
        Operation.TERMINATE,
        {State.UNBOUND},
        None,
        {End.DONE: State.TERMINATED, End.UNDONE: State.UNBOUND},
    ),
)

#: States in which some operation holds the session.
HELD: frozenset[State] = frozenset(row.during for row in TABLE if row.during is not None)


def find(state: State, operation: Operation) -> Row | None:
    """The row that lets `operation` start in `state`, or None when it may not."""
    for row in TABLE:
        if row.operation is operation and state in row.states:
            return row
    return None


def after(row: Row, origin: State, end: End) -> State:
    """The state that `end` leads to; KeyError for an end the row does not know."""
    return row.ends[end] or origin


def adopted(held: State) -> State:
    """The state of a session whose daemon died while it was `held`."""
    for row in TABLE:
        if row.during is held and End.DIED in row.ends:
            return after(row, held, End.DIED)
    return held
