"""Writes the lifecycle table as a TLA+ module, so that TLC checks the table that the code uses.

    python -m tests.model.table_tla      writes docs/spec/Table.tla anew

What lives here: the translation, one way. A test keeps the file up to date.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from runner.session import lifecycle
from runner.session.lifecycle import Operation, Row, State

TARGET = Path(__file__).parents[2] / "docs" / "spec" / "Table.tla"

_MODULE = """\
------------------------------- MODULE Table -------------------------------
(* Made from runner/session/lifecycle.py by `python -m tests.model.table_tla`; not to be edited. *)

States == {states}

Operations == {operations}

Held == {held}

\\* during "none": one atomic step.  An end "origin" leads to where the operation came from.
Rows == <<
{rows}
>>
=============================================================================
"""


def module() -> str:
    """The text of the module for `lifecycle.TABLE` as it is now."""
    return _MODULE.format(
        states=_set(State),
        operations=_set(Operation),
        held=_set(lifecycle.HELD),
        rows=",\n".join(_row(row) for row in lifecycle.TABLE),
    )


def _row(row: Row) -> str:
    ends = ", ".join(f'{end} |-> "{state or "origin"}"' for end, state in row.ends.items())
    return (
        f'    [operation |-> "{row.operation}", during |-> "{row.during or "none"}",\n'
        f"     states |-> {_set(row.states)},\n"
        f"     ends |-> [{ends}]]"
    )


def _set(members: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{member}"' for member in sorted(members)) + "}"


if __name__ == "__main__":
    TARGET.write_text(module(), encoding="utf-8")
