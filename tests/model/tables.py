"""Lifecycle tables that are wrong in one place, to see that the place matters.

What lives here: copies of `lifecycle.TABLE` with one permission or one end changed.
"""

from __future__ import annotations

from dataclasses import replace

from runner.session.lifecycle import TABLE, End, Operation, Row, State

Table = tuple[Row, ...]


def allowing(operation: Operation, state: State) -> Table:
    """The table that also lets `operation` start in `state`."""
    return tuple(
        replace(row, states=row.states | {state}) if row.operation is operation else row
        for row in TABLE
    )


def forbidding(operation: Operation, state: State) -> Table:
    """The table that does not let `operation` start in `state`."""
    return tuple(
        replace(row, states=row.states - {state}) if row.operation is operation else row
        for row in TABLE
    )


def ending(operation: Operation, end: End, state: State) -> Table:
    """The table in which `end` of `operation` leads to `state`."""
    return tuple(
        replace(row, ends=row.ends | {end: state})
        if row.operation is operation and end in row.ends
        else row
        for row in TABLE
    )
