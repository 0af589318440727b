"""What a daemon makes of the disk that it finds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.session.adoption import adopt, adopted_state
from runner.session.lifecycle import State
from runner.session.record import Dirty, Record, Store
from runner.workspace.dataroot import DataRoot, Owner

BOUND = Record(session="s", incarnation="i", surfaced={"x": "00" * 32})
READY = replace(BOUND, provisioned="i")

#: record, is the workspace there → state
STATES = {
    "nothing": (None, False, State.UNBOUND),
    "a workspace alone": (None, True, State.UNBOUND),
    "bound and not provisioned": (BOUND, False, State.FRESH),
    "killed during its boot": (BOUND, True, State.FRESH),
    "provisioned": (READY, True, State.READY),
    "provisioned by another incarnation": (replace(BOUND, provisioned="j"), True, State.FRESH),
    "provisioned and the workspace is gone": (READY, False, State.DIRTY),
    "killed while placing files": (replace(READY, dirty=Dirty.PRIMING), True, State.DIRTY),
    "terminated": (replace(READY, terminated=True), True, State.TERMINATED),
    "terminated and dirty": (
        replace(READY, terminated=True, dirty=Dirty.ENDED),
        True,
        State.TERMINATED,
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_the_state_follows_from_record_and_workspace(name: str) -> None:
    record, present, state = STATES[name]
    assert adopted_state(record, workspace_present=present) is state


@pytest.fixture
def data(fast_dir: Path) -> Iterator[DataRoot]:
    opened = DataRoot.open(str(fast_dir / "data"), Owner(200_000, 200_000))
    yield opened
    opened.close()


def leave(data: DataRoot, record: Record | None, *, files: tuple[str, ...] = ()) -> Path:
    """What the last daemon left."""
    if record is not None:
        Store(data.open_state()).save(record)
    workspace = Path(data.path) / "workspace"
    if files:
        workspace.mkdir()
        for name in files:
            (workspace / name).write_text("left")
    return workspace


def test_an_unfinished_restore_is_wiped_with_all_that_was_known(data: DataRoot) -> None:
    workspace = leave(data, replace(READY, dirty=Dirty.RESTORING), files=("half",))
    session = adopt(data, lock_wait=1)
    assert session.state is State.FRESH
    assert session.record == Record(session="s", incarnation="i")
    assert os.listdir(workspace) == []
    # And the next daemon finds it so, too.
    assert Store(data.open_state()).load() == session.record


def test_an_unfinished_restore_that_cannot_be_wiped_is_dirty(
    data: DataRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(data, replace(READY, dirty=Dirty.RESTORING), files=("half",))

    def broken(_: DataRoot) -> None:
        raise OSError(5, "broken disk")

    monkeypatch.setattr(DataRoot, "wipe_workspace", broken)
    session = adopt(data, lock_wait=1)
    assert session.state is State.DIRTY
    assert session.record is not None and session.record.dirty is Dirty.RESTORING


def test_an_interrupted_placing_stays_dirty_and_keeps_the_files(data: DataRoot) -> None:
    workspace = leave(data, replace(READY, dirty=Dirty.PRIMING), files=("half",))
    assert adopt(data, lock_wait=1).state is State.DIRTY
    assert os.listdir(workspace) == ["half"]


def test_a_ready_session_keeps_everything(data: DataRoot) -> None:
    workspace = leave(data, READY, files=("kept",))
    session = adopt(data, lock_wait=1)
    assert (session.state, session.record, session.incarnation) == (State.READY, READY, "i")
    assert os.listdir(workspace) == ["kept"]


def test_nobodys_files_are_wiped_before_anybody_is_bound(data: DataRoot) -> None:
    workspace = leave(data, None, files=("nobodys",))
    assert adopt(data, lock_wait=1).state is State.UNBOUND
    assert os.listdir(workspace) == []


def test_a_record_without_its_seal_gives_the_files_to_nobody(data: DataRoot) -> None:
    workspace = leave(data, READY, files=("somebodys",))
    record = Path(data.path) / "state/session.json"
    record.write_bytes(record.read_bytes().replace(b'"s"', b'"t"'))
    session = adopt(data, lock_wait=1)
    assert session.state is State.DIRTY and session.incarnation is None
    assert session.record is not None and session.record.dirty is Dirty.UNREADABLE
    assert os.listdir(workspace) == ["somebodys"]


def test_a_missing_workspace_says_so(data: DataRoot) -> None:
    leave(data, READY)
    session = adopt(data, lock_wait=1)
    assert session.state is State.DIRTY
    assert session.record is not None and session.record.dirty is Dirty.MISSING


def test_half_made_things_are_swept(data: DataRoot) -> None:
    for name in ("staging/prime-x/0", "jobs/dead/y"):
        path = Path(data.path) / name
        path.parent.mkdir(parents=True)
        path.write_text("x")
    adopt(data, lock_wait=1)
    assert os.listdir(f"{data.path}/staging") == [] and os.listdir(f"{data.path}/jobs") == []
