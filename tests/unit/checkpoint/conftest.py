"""What the tests of saving share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.checkpoint.limits import CHUNK
from runner.workspace.tree import Tree


@pytest.fixture
def workspace(fast_dir: Path) -> Path:
    """A workspace with something of each kind."""
    top = fast_dir / "workspace"
    (top / "d").mkdir(parents=True)
    (top / "d/file").write_bytes(b"body")
    (top / "random").write_bytes(os.urandom(3 * CHUNK))
    os.symlink("d", top / "symlink")
    os.link(top / "d/file", top / "link")
    return top


@pytest.fixture
def tree(workspace: Path) -> Iterator[Tree]:
    """The same, opened; no thread of a save may outlive the test."""
    with Tree.open(str(workspace)) as tree:
        yield tree
    assert [each.name for each in threading.enumerate() if "checkpoint" in each.name] == []
