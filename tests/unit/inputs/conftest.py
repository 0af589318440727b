"""A cache's directory and a staging directory, on tmpfs."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.inputs.cache import Arrival, InputCache
from runner.workspace.tree import Tree


@dataclass
class Shelf:
    """Trees for the code under test, paths for the test to look at them from outside."""

    root: Path
    inputs: Tree
    staging: Tree
    arrived: int = 0

    @property
    def files(self) -> list[str]:
        """Keys of the files on the disk, sorted."""
        return sorted(path.name.split(".")[0] for path in (self.root / "inputs").iterdir())

    def cache(self, max_bytes: int = 1 << 20) -> InputCache:
        return InputCache(self.inputs, max_bytes=max_bytes)

    def arrival(self, key: str, body: bytes, *, read_only: bool = False) -> Arrival:
        self.arrived += 1
        name = f"arrived-{self.arrived}"
        (self.root / "staging" / name).write_bytes(body)
        digest = hashlib.sha256(body).hexdigest()
        return Arrival(key, (name.encode(),), digest, len(body), read_only)

    def put(self, cache: InputCache, key: str, body: bytes, *, read_only: bool = False) -> None:
        cache.store(self.staging, [self.arrival(key, body, read_only=read_only)])


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    root = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="shelf-"))
    for name in ("inputs", "staging"):
        (root / name).mkdir(mode=0o700)
    with Tree.open(str(root / "inputs")) as inputs, Tree.open(str(root / "staging")) as staging:
        yield Shelf(root, inputs, staging)
    shutil.rmtree(root)
