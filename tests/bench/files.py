"""What a workspace full of files adds to a turn: 20,000 of 4 KiB that the client has already.

The floor is an empty workspace's turn. Of `ours` a part is the walk itself: an lstat of 20,000
files takes CPython some 90 ms.

    python -m tests.bench.files
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import shutil
import tempfile
import time
from pathlib import Path

from runner.checkpoint import inventory
from runner.checkpoint.limits import Limits
from runner.checkpoint.save import save
from runner.checkpoint.sidecar import SidecarFacts
from runner.workspace.tree import Tree
from tests.bench.checkpoint import KEY, many_small
from tests.bench.measuring import HEADER, Row, in_turns
from tests.harness import Daemon

SESSION = "bench"
ROUNDS = 15
LIMITS = Limits.of(1 << 30)
SIDECAR_KEY = {"X-Sidecar-Key": base64.urlsafe_b64encode(KEY).decode()}


async def rows(root: Path) -> list[Row]:
    """One row."""
    async with Daemon(root / "empty") as empty, Daemon(root / "full") as full:
        restored = await full.restore(SESSION, _archive(root / "files"), headers=SIDECAR_KEY)
        assert restored.status == 200, restored.body
        # The first turn hashes everything; what it hashed is remembered.
        for daemon in (empty, full):
            await _turn(daemon)
        floor, ours = await in_turns(lambda: _turn(empty), lambda: _turn(full), rounds=ROUNDS)
    return [Row("turn, 20,000 unchanged files", "turn, no files", floor, ours)]


def _archive(path: Path) -> bytes:
    """A checkpoint of the files, with all of them surfaced."""
    path.mkdir(parents=True)
    many_small(str(path))
    surfaced = {
        str(each.relative_to(path)): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in path.rglob("*")
        if each.is_file()
    }
    facts = SidecarFacts(
        session=SESSION,
        incarnation="bench",
        created_at="2026-01-01T00:00:00Z",
        primed={},
        surfaced=surfaced,
    )
    with Tree.open(str(path)) as tree:
        plan = inventory.plan(tree, LIMITS)
        return b"".join(save(tree, facts, plan, key=KEY, limits=LIMITS))


async def _turn(daemon: Daemon) -> float:
    """Seconds from request to result."""
    began = time.perf_counter()
    reply = await daemon.execute("pass", session=SESSION)
    assert reply.status == 200 and reply.json["files"] == [], reply.body[:500]
    return time.perf_counter() - began


async def main() -> None:
    """Prints the row."""
    root = Path(tempfile.mkdtemp(prefix="sandbox-runner-bench-", dir="/dev/shm"))
    try:
        print(HEADER)
        for row in await rows(root):
            print(row)
            print(f"\n20,000 unchanged files add {(row.ours - row.floor) * 1000:.0f} ms to a turn.")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
