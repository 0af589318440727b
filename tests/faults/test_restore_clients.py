"""Restores from the event loop: clients that leave or never stop; the loop and the memory."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.checkpoint.chain import Expected
from runner.checkpoint.restore import Restore
from runner.errors import CheckpointUnsafe
from runner.workspace.tree import Tree
from tests.unit.checkpoint import forge
from tests.unit.checkpoint.kit import KEY, LIMITS, OWNER, SESSION, facts, look, saved


@pytest.fixture
def archive(fast_dir: Path) -> bytes:
    """A checkpoint that takes several chunks."""
    (fast_dir / "workspace").mkdir()
    (fast_dir / "workspace/random").write_bytes(os.urandom(50_000))
    return saved(fast_dir / "workspace")


def expected() -> Expected:
    """What `saved` seals."""
    return Expected(session=SESSION, key=KEY, owner=OWNER, limits=LIMITS)


@pytest.fixture
def staging(fast_dir: Path) -> Iterator[Tree]:
    """An empty staging; no thread of a restore may outlive the test."""
    (fast_dir / "staging").mkdir()
    with Tree.open(str(fast_dir / "staging")) as tree:
        yield tree
    assert [each.name for each in threading.enumerate() if "checkpoint" in each.name] == []


async def test_a_restore_leaves_its_tree_only_until_the_context_ends(
    archive: bytes, staging: Tree, fast_dir: Path
) -> None:
    async with Restore(staging, b"r", expected()) as restore:
        for start in range(0, len(archive), 1000):
            await restore.feed(archive[start : start + 1000])
        restored = await restore.finish()
        assert look(fast_dir / "staging/r") == look(fast_dir / "workspace")
    assert restored.sidecar.incarnation == facts().incarnation
    assert os.listdir(fast_dir / "staging") == []


async def test_a_lost_client_leaves_nothing(archive: bytes, staging: Tree, fast_dir: Path) -> None:
    with pytest.raises(ConnectionResetError):
        async with Restore(staging, b"r", expected()) as restore:
            await restore.feed(archive[: len(archive) // 2])
            raise ConnectionResetError
    assert os.listdir(fast_dir / "staging") == []


async def test_a_cancelled_restore_leaves_nothing(
    archive: bytes, staging: Tree, fast_dir: Path
) -> None:
    fed = asyncio.Event()

    async def run() -> None:
        async with Restore(staging, b"r", expected()) as restore:
            await restore.feed(archive[:-20])
            fed.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(run())
    await fed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(fast_dir / "staging") == []


async def test_a_bad_archive_is_refused_while_it_is_still_coming(
    staging: Tree, fast_dir: Path
) -> None:
    bad = forge.sealed(forge.ROOT, forge.file(b"session/../x"), forge.file(b"session/y"))
    with pytest.raises(CheckpointUnsafe):
        async with Restore(staging, b"r", expected()) as restore:
            await restore.feed(bad)
            while True:  # A client that never stops.
                await restore.feed(os.urandom(64 << 10))
    assert os.listdir(fast_dir / "staging") == []


@pytest.mark.alone
async def test_the_loop_runs_on_while_a_restore_works(fast_dir: Path, staging: Tree) -> None:
    (fast_dir / "large").mkdir()
    (fast_dir / "large/zeros").write_bytes(bytes(200 << 20))
    archive = saved(fast_dir / "large")
    longest, last = 0.0, asyncio.get_running_loop().time()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.001)
            now = asyncio.get_running_loop().time()
            longest, last = max(longest, now - last), now

    watching = asyncio.create_task(watch())
    async with Restore(staging, b"r", expected()) as restore:
        await restore.feed(archive[: 256 << 10])
        for start in range(256 << 10, len(archive), 256 << 10):
            await restore.feed(archive[start : start + (256 << 10)])
        await restore.finish()
    watching.cancel()
    assert longest < 0.25


MEMORY = """
import resource, sys
from pathlib import Path
from tests.unit.checkpoint.kit import restored, saved
from runner.checkpoint.limits import Limits
top = Path(sys.argv[1])
restored(saved(top / "small"), top / "staging", name=b"warm")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
restored((top / "archive").read_bytes(), top / "staging", limits=Limits.of(1 << 30))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("what", ["one large file", "many members", "many hard links"])
def test_memory_does_not_grow_with_the_archive(fast_dir: Path, what: str) -> None:
    (fast_dir / "small").mkdir()
    members = [forge.ROOT, forge.file(b"session/a", b"x")]
    if what == "one large file":
        members.append(forge.file(b"session/b", bytes(200 << 20)))
    elif what == "many members":
        members += [forge.file(b"session/b%06d" % number) for number in range(60_000)]
    else:
        members += [
            forge.hard_link(b"session/b%06d" % number, b"session/a") for number in range(60_000)
        ]
    (fast_dir / "archive").write_bytes(forge.sealed(*members))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(fast_dir)], check=True, capture_output=True
    )
    assert int(done.stdout) << 10 < 32 << 20
