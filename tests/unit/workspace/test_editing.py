"""One file put from outside: with the directories that it lacks, in one step."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from runner.workspace import editing
from runner.workspace.paths import SafePath
from runner.workspace.tree import Tree

UID = GID = 200_000


def put(top: Path, path: str) -> editing.Edited:
    with Tree.open(str(top / "workspace")) as workspace, Tree.open(str(top / "staging")) as staging:
        (top / "staging/put-1").write_bytes(b"body")
        return editing.put(
            workspace,
            SafePath.parse(path),
            staging,
            (b"put-1",),
            uid=UID,
            gid=GID,
            precondition=lambda _: None,
        )


@pytest.fixture
def top(fast_dir: Path) -> Path:
    for name in ("workspace", "staging"):
        (fast_dir / name).mkdir()
    return fast_dir


@pytest.mark.parametrize("there", ["", "a", "a/b"])
def test_missing_directories_come_with_the_file_and_are_the_sessions(top: Path, there: str) -> None:
    (top / "workspace" / there).mkdir(parents=True, exist_ok=True)
    assert put(top, "a/b/c").created
    assert (top / "workspace/a/b/c").read_bytes() == b"body"
    made = [name for name in ("a", "a/b", "a/b/c") if len(name) > len(there)]
    for name in made:
        status = (top / "workspace" / name).lstat()
        wanted = 0o644 if name == "a/b/c" else 0o755
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (UID, wanted)
    assert os.listdir(top / "staging") == []


def test_a_program_that_makes_the_directory_first_loses_nothing(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / "workspace/a").mkdir()
    (top / "workspace/a/kept").write_bytes(b"kept")
    # It came to be right after we looked.
    monkeypatch.setattr(editing, "_is_directory", lambda *_: False)
    assert put(top, "a/b/c").created
    assert (top / "workspace/a/b/c").read_bytes() == b"body"
    assert (top / "workspace/a/kept").read_bytes() == b"kept"
    assert os.listdir(top / "staging") == []
