"""Save and restore as ratios to `tar | igzip -1` and `igzip -d | tar x`, on tmpfs, same run.

A ratio of 1 is as fast as the pipeline, 2 twice as fast. Every measurement is taken next to its
floor, and the best of each counts: the neighbours' load falls on both. Needs `tar` and `igzip`
(Debian package isal).

    python -m tests.bench.checkpoint
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from runner.checkpoint import inventory
from runner.checkpoint.chain import Expected
from runner.checkpoint.limits import Limits
from runner.checkpoint.restore import Restore
from runner.checkpoint.save import stream_save
from runner.checkpoint.sidecar import SidecarFacts
from runner.workspace.dataroot import Owner
from runner.workspace.tree import Tree

ROUNDS = 5
KEY = b"k" * 32
#: What a body arrives in from an HTTP connection.
BODY_CHUNK = 64 << 10
FACTS = SidecarFacts(
    session="bench",
    incarnation="bench",
    created_at="2026-01-01T00:00:00Z",
    primed={},
    surfaced={},
)
LIMITS = Limits.of(1 << 30)


@dataclass(frozen=True, slots=True)
class Ratios:
    """One kind of workspace. Times are the best of `ROUNDS`, in seconds; memory in bytes."""

    workspace: str
    floor_save: float
    save: float
    floor_restore: float
    restore: float
    memory_growth: int

    @property
    def save_ratio(self) -> float:
        """Speed of save in speeds of its floor."""
        return self.floor_save / self.save

    @property
    def restore_ratio(self) -> float:
        """Speed of restore in speeds of its floor."""
        return self.floor_restore / self.restore


def half_compressible(top: str) -> None:
    """One file of 256 MiB, half of it text."""
    text = (b"the quick brown fox jumps over the lazy dog. " * 11651)[: 512 << 10]
    with open(f"{top}/large", "wb") as file:
        for _ in range(256):
            file.write(os.urandom(512 << 10) + text)


def many_small(top: str) -> None:
    """20,000 files of 4 KiB in 100 directories."""
    for directory in range(100):
        os.mkdir(f"{top}/d{directory:03}")
        for number in range(200):
            with open(f"{top}/d{directory:03}/f{number:03}", "wb") as file:
                file.write(os.urandom(2048) + b"half of it text\n" * 128)


def measure(name: str, fill: Callable[[str], None], rounds: int = ROUNDS) -> Ratios:
    """Fills a workspace on tmpfs and measures all four, in turns."""
    base = tempfile.mkdtemp(dir="/dev/shm")
    try:
        workspace, out = f"{base}/workspace", f"{base}/out"
        os.mkdir(workspace)
        os.mkdir(f"{base}/staging")
        fill(workspace)
        best = [float("inf")] * 4
        asyncio.run(_save(workspace, f"{base}/warm"))
        before = _peak_memory()
        for _ in range(rounds):
            for index, run in enumerate(
                (
                    lambda: _shell(f"tar -C {workspace} -cf - . | igzip -1 > {out}.floor"),
                    lambda: asyncio.run(_save(workspace, f"{out}.ours")),
                    lambda: _shell(f"igzip -dc {out}.floor | tar -C {base}/x -xpf -"),
                    lambda: asyncio.run(_restore(f"{base}/staging", f"{out}.ours")),
                )
            ):
                os.mkdir(f"{base}/x")
                best[index] = min(best[index], run())
                shutil.rmtree(f"{base}/x")
        return Ratios(name, *best, memory_growth=_peak_memory() - before)
    finally:
        shutil.rmtree(base)


async def _save(workspace: str, out: str) -> float:
    with Tree.open(workspace) as tree, open(out, "wb") as file:
        start = time.perf_counter()
        planned = await asyncio.to_thread(inventory.plan, tree, LIMITS)
        stream = stream_save(tree, FACTS, planned, key=KEY, limits=LIMITS)
        async with contextlib.aclosing(stream) as chunks:
            async for chunk in chunks:
                file.write(chunk)
        return time.perf_counter() - start


async def _restore(staging: str, archive: str) -> float:
    expected = Expected(session="bench", key=KEY, owner=Owner(200000, 200000), limits=LIMITS)
    with Tree.open(staging) as tree, open(archive, "rb") as file:
        async with Restore(tree, b"restored", expected) as restore:
            start = time.perf_counter()
            while chunk := file.read(BODY_CHUNK):
                await restore.feed(chunk)
            await restore.finish()
            return time.perf_counter() - start


def _shell(pipeline: str) -> float:
    start = time.perf_counter()
    subprocess.run(["sh", "-c", pipeline], check=True)
    return time.perf_counter() - start


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def ratios(rounds: int = ROUNDS) -> list[Ratios]:
    """Both workspaces."""
    return [
        measure("256 MiB, half text", half_compressible, rounds),
        measure("20,000 x 4 KiB", many_small, rounds),
    ]


if __name__ == "__main__":
    for each in ratios():
        print(
            f"{each.workspace}: save {each.save_ratio:.2f} ({each.save:.3f} s), "
            f"restore {each.restore_ratio:.2f} ({each.restore:.3f} s), "
            f"memory +{each.memory_growth >> 20} MiB"
        )
