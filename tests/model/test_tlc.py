"""TLC on docs/spec: a second checker, written by others, must come to the same figures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from runner.session import lifecycle
from runner.session.lifecycle import Operation, State
from tests.figures import Say
from tests.model import tlc
from tests.model.checker import Report, check
from tests.model.published import published
from tests.model.session_model import session
from tests.model.session_world import World
from tests.model.table_tla import module
from tests.model.tables import allowing

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(tlc.missing() is not None, reason=str(tlc.missing())),
]


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
def test_tlc_agrees_on_the_published_lifecycle(guarded: bool, tmp_path: Path, say: Say) -> None:
    config = "PublishedGuarded" if guarded else "PublishedUnguarded"
    theirs = tlc.run("Published", config, tmp_path)
    ours = check(published(guarded=guarded))
    say(f"TLC, {config}: {_figures(theirs)}")
    assert theirs.violated == ours.violated
    assert theirs.actions == ours.actions
    if ours.holds:
        # A search that stops at a violation has counted what it happened to see first.
        assert _figures(theirs) == _figures(ours)


def test_tlc_agrees_on_our_lifecycle(explored: Report[World], tmp_path: Path, say: Say) -> None:
    theirs = tlc.run("Session", "Session", tmp_path)
    say(f"TLC, Session: {_figures(theirs)}")
    assert theirs.violated is None
    assert _figures(theirs) == _figures(explored)


@pytest.mark.parametrize(
    ("operation", "state"),
    [
        (Operation.ATTACH, State.FRESH),
        (Operation.BOOT, State.READY),
        (Operation.EXECUTE, State.DIRTY),
    ],
)
def test_tlc_finds_what_our_checker_finds_when_the_table_is_wrong(
    operation: Operation,
    state: State,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    say: Say,
) -> None:
    monkeypatch.setattr(lifecycle, "TABLE", allowing(operation, state))
    for name in ("Session.tla", "Session.cfg"):
        shutil.copy(tlc.SPEC / name, tmp_path)
    (tmp_path / "Table.tla").write_text(module(), encoding="utf-8")
    theirs = tlc.run("Session", "Session", tmp_path, spec=tmp_path)
    ours = check(session())
    say(f"TLC, {operation} in {state}: {theirs.violated} in {len(theirs.actions) + 1} states")
    assert theirs.violated is not None
    assert len(theirs.actions) == len(ours.actions)


def _figures(report: tlc.TlcReport | Report[Any]) -> str:
    return f"{report.generated} states reached, {report.distinct} distinct, depth {report.depth}"
