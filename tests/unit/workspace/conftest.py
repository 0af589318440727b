"""A workspace and a staging directory on tmpfs, as the daemon has them on one file system."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.workspace import syscalls
from runner.workspace.tree import Tree

UID = GID = 200000


@dataclass(frozen=True)
class Room:
    """Trees for the code under test, paths for the test to look at them from outside."""

    root: Path
    top: Tree
    workspace: Tree
    staging: Tree

    @property
    def data(self) -> Path:
        return self.root / "workspace"


@pytest.fixture
def room() -> Iterator[Room]:
    assert os.geteuid() == 0, "these tests give files to another user and need root"
    root = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="room-"))
    root.chmod(0o755)
    with Tree.open(str(root)) as top:
        workspace = top.make_dir((b"workspace",), uid=UID, gid=GID)
        staging = top.make_dir((b"staging",), uid=0, gid=0, mode=0o700)
        with workspace, staging:
            yield Room(root, top, workspace, staging)
        # By ours, not by rmtree: the trees here are deeper than a path may be long.
        top.clear()
    shutil.rmtree(root)


@pytest.fixture(params=["openat2", "walk"])
def both_descents(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same behaviour with openat2 and on a kernel that has none."""
    if request.param == "walk":
        monkeypatch.setattr(syscalls, "has_openat2", lambda: False)
    else:
        assert syscalls.has_openat2()
    return str(request.param)
