"""docs/recovery.md, from the error tree, the outcome table and the advice on each failure."""

from __future__ import annotations

from runner.execution.rules import MISSING, RULES, UNKNOWN, Row
from runner.recovery import ADVICE, Course

_COURSE = {
    Course.REPEAT: "repeat on the same VM",
    Course.RESTORE: "restore into a new VM",
    Course.GIVE_UP: "give up",
}


def render() -> str:
    """The failures by status, and the outcomes by fault."""
    return f"{_failures()}\n\n{_outcomes()}\n"


def _failures() -> str:
    lines = ["| status | `error` | retryable | recycle | do | how |", "|---|---|---|---|---|---|"]
    for each in sorted(ADVICE, key=lambda one: one.failure.status):
        failure = each.failure
        flags = f"{_yes(failure.retryable)} | {_yes(failure.recycle)}"
        done = f"{_COURSE[each.course]} | {each.how}"
        named = f"`{failure.code}`" + (f", reason `{each.reason}`" if each.reason else "")
        lines.append(f"| {failure.status} | {named} | {flags} | {done} |")
    return "\n".join(lines)


def _yes(flag: bool) -> str:
    return "yes" if flag else ""


def _outcomes() -> str:
    lines = ["| `outcome.kind` | fault | do |", "|---|---|---|"]
    lines += [_outcome(row) for row in (MISSING, *(rule.row for rule in RULES), UNKNOWN)]
    return "\n".join(lines)


_WHOSE = {
    "none": "it ran, and this is its result; where the code is not 0 the fault is `user`",
    "user": "give up: it is the program's or the caller's own doing, and is told to the user",
    "limit": "give up: it ran into a limit, and would again; a higher one may be asked for",
}


def _outcome(row: Row) -> str:
    done = f"{row.note}: see there" if row.fault == "infrastructure" else _WHOSE[row.fault]
    return f"| `{row.kind}` | {row.fault} | {done} |"
