"""docs/lifecycle.md, from the lifecycle table and the route table."""

from __future__ import annotations

from collections.abc import Iterable

from runner.app import ROUTES, Route
from runner.session.lifecycle import TABLE, End, Operation, Row, State


def render() -> str:
    """The operations, the diagram, the routes."""
    return "\n\n".join((_operations(), _diagram(), _routes())) + "\n"


def _operations() -> str:
    ends = list(End)
    lines = [
        "| operation | may start in | holds the session as | " + " | ".join(ends) + " |",
        "|---" * (3 + len(ends)) + "|",
    ]
    for row in TABLE:
        cells = [_end(row, end) for end in ends]
        held = f"`{row.during}`" if row.during else "one step"
        lines.append(f"| {row.operation} | {_states(row.states)} | {held} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _end(row: Row, end: End) -> str:
    if end not in row.ends:
        return ""
    state = row.ends[end]
    return f"`{state}`" if state else "where it came from"


def _states(states: Iterable[State]) -> str:
    given = set(states)
    if len(given) > len(State) / 2:
        return "any but " + ", ".join(f"`{state}`" for state in State if state not in given)
    return ", ".join(f"`{state}`" for state in State if state in given)


def _diagram() -> str:
    arrows: dict[tuple[State, State], list[str]] = {}
    for row in TABLE:
        if row.operation is Operation.TERMINATE:
            continue
        for origin in sorted(row.states):
            if row.during is None:
                _draw(arrows, origin, row.ends[End.DONE] or origin, row.operation)
                continue
            _draw(arrows, origin, row.during, row.operation)
            for end, state in row.ends.items():
                _draw(arrows, row.during, state or origin, end)
    lines = [f"    {a} --> {b}: {', '.join(words)}" for (a, b), words in arrows.items()]
    return "\n".join(
        ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.UNBOUND}", *lines, "```"]
    )


def _draw(arrows: dict[tuple[State, State], list[str]], a: State, b: State, word: str) -> None:
    words = arrows.setdefault((a, b), [])
    if word not in words:
        words.append(word)


def _routes() -> str:
    lines = ["| route | operation | states in which it may start |", "|---|---|---|"]
    lines += [_route(route) for route in ROUTES]
    return "\n".join(lines)


def _route(route: Route) -> str:
    path = route.path.replace(":.+", "")
    if route.operation is None:
        return f"| `{route.method} {path}` | | any: it holds no session |"
    return f"| `{route.method} {path}` | {route.operation} | {_states(route.states)} |"
