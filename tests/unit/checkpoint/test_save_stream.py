"""Saving as a stream: what cannot be whole is cut, who leaves ends it, memory is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from runner.checkpoint import inventory
from runner.checkpoint.limits import CHUNK
from runner.checkpoint.save import save, stream_save
from runner.errors import Internal
from runner.workspace.tree import Tree
from tests.unit.checkpoint.kit import KEY, LIMITS, facts


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


CHANGES = {
    "a file grows": lambda top: grow(top / "random"),
    "a file shrinks": lambda top: os.truncate(top / "random", 1),
    "a file is rewritten": lambda top: (top / "random").write_bytes(bytes(3 * CHUNK)),
    "a file vanishes": lambda top: (top / "random").unlink(),
    "a file becomes a symlink": lambda top: (
        (top / "random").unlink(), os.symlink("/etc/passwd", top / "random"),
    ),
    "a file appears": lambda top: (top / "new").touch(),
    "a mode changes": lambda top: (top / "d").chmod(0o700),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_a_workspace_that_changed_since_its_plan_is_not_saved(
    workspace: Path, tree: Tree, what: str
) -> None:
    planned = inventory.plan(tree, LIMITS)
    CHANGES[what](workspace)
    with pytest.raises(Internal) as caught:
        list(save(tree, facts(), planned, key=KEY, limits=LIMITS))
    assert (caught.value.reason, caught.value.retryable) == ("unstable", True)


def test_a_file_that_changes_while_it_is_read_cuts_the_stream(workspace: Path, tree: Tree) -> None:
    (workspace / "random").write_bytes(os.urandom(40 * CHUNK))
    planned = inventory.plan(tree, LIMITS)
    chunks = save(tree, facts(), planned, key=KEY, limits=LIMITS)
    next(chunks)
    with (workspace / "random").open("r+b") as file:
        file.write(b"changed")
    with pytest.raises(Internal):
        list(chunks)


# From the event loop


async def test_a_reader_that_stops_early_ends_the_threads(workspace: Path, tree: Tree) -> None:
    (workspace / "random").write_bytes(os.urandom(100 * CHUNK))
    planned = inventory.plan(tree, LIMITS)
    async with contextlib.aclosing(
        stream_save(tree, facts(), planned, key=KEY, limits=LIMITS)
    ) as chunks:
        await anext(chunks)
        await asyncio.sleep(0.05)


async def test_a_cancelled_reader_ends_the_threads(workspace: Path, tree: Tree) -> None:
    (workspace / "random").write_bytes(os.urandom(100 * CHUNK))
    planned = inventory.plan(tree, LIMITS)
    started = asyncio.Event()

    async def read() -> None:
        stream = stream_save(tree, facts(), planned, key=KEY, limits=LIMITS)
        async with contextlib.aclosing(stream) as chunks:
            async for _ in chunks:
                started.set()
                await asyncio.sleep(60)

    task = asyncio.create_task(read())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [each.name for each in threading.enumerate() if "checkpoint" in each.name] == []


async def test_a_slow_reader_holds_the_threads_back(workspace: Path, tree: Tree) -> None:
    (workspace / "random").write_bytes(os.urandom(200 * CHUNK))
    planned = inventory.plan(tree, LIMITS)
    given = 0

    def counted(fd: int, views: list[memoryview], readv: object = os.readv) -> int:
        nonlocal given
        length: int = readv(fd, views)  # type: ignore[operator]
        given += length
        return length

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "readv", counted)
        stream = stream_save(tree, facts(), planned, key=KEY, limits=LIMITS)
        async with contextlib.aclosing(stream) as chunks:
            await anext(chunks)
            await asyncio.sleep(0.3)
            assert 0 < given <= 8 << 20


MEMORY = """
import resource, sys
from pathlib import Path
from runner.checkpoint import inventory
from runner.checkpoint.limits import Limits
from runner.checkpoint.save import save
from runner.workspace.tree import Tree
from tests.unit.checkpoint.kit import KEY, facts
limits = Limits.of(1 << 30)
def run(top):
    with Tree.open(top) as tree:
        for _ in save(tree, facts(), inventory.plan(tree, limits), key=KEY, limits=limits):
            pass
run(sys.argv[1] + "/small")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(sys.argv[1] + "/large")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("what", ["one large file", "many files"])
def test_memory_does_not_grow_with_the_workspace(fast_dir: Path, what: str) -> None:
    for name in ("small", "large"):
        (fast_dir / name).mkdir()
    if what == "one large file":
        with (fast_dir / "large/sparse").open("wb") as file:
            file.truncate(256 << 20)
    else:
        for number in range(20_000):
            (fast_dir / f"large/{number}").touch()
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(fast_dir)], check=True, capture_output=True
    )
    assert int(done.stdout) << 10 < 32 << 20


async def test_a_failure_reaches_the_reader_as_itself(workspace: Path, tree: Tree) -> None:
    planned = inventory.plan(tree, LIMITS)
    (workspace / "new").touch()
    stream = stream_save(tree, facts(), planned, key=KEY, limits=LIMITS)
    with pytest.raises(Internal):
        async with contextlib.aclosing(stream) as chunks:
            async for _ in chunks:
                pass
