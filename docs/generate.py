"""`make docs`: the pages that are made from tables in the code. `--check` only compares.

A page lives between its two marks; what stands around them is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from docs import lifecycle_page, recovery_page
from runner.execution.rules import MISSING, RULES, UNKNOWN, Row

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- generated: make docs -->\n", "<!-- /generated -->\n"


def outcomes() -> str:
    """The outcome table, in the order in which it is gone through."""
    rows = [MISSING, *(rule.row for rule in RULES), UNKNOWN]
    lines = ["| kind | fault | status | decided by | besides |", "|---|---|---|---|---|"]
    lines += [_line(row) for row in rows]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    status = f"`{row.status}`" if row.status else "null"
    return f"| `{row.kind}` | {row.fault} | {status} | {row.decided_by} | {row.note} |"


PAGES: dict[str, Callable[[], str]] = {
    "lifecycle.md": lifecycle_page.render,
    "outcomes.md": outcomes,
    "recovery.md": recovery_page.render,
}


def rendered(name: str) -> str:
    """The page as it should be: its own text, with the table as the code has it."""
    before, _, rest = (HERE / name).read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{PAGES[name]()}{END}{after}"


def main() -> int:
    """Writes the pages, or says which are not up to date."""
    stale = [name for name in PAGES if rendered(name) != (HERE / name).read_text("utf-8")]
    if "--check" in sys.argv:
        print("".join(f"docs/{name} is not up to date: make docs\n" for name in stale), end="")
        return bool(stale)
    for name in stale:
        (HERE / name).write_text(rendered(name), "utf-8")
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
