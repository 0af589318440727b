"""Checkpoint and restore through HTTP, against `tar | igzip -1` and back; the daemon's memory."""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.checkpoint import half_compressible, many_small
from tests.bench.measuring import Row, in_turns, loop_lag, peak, reset_peak
from tests.harness import Daemon, daemons

SESSION = "bench"
UID = 200000


@dataclass(frozen=True, slots=True)
class Transfers:
    """The rows; by how much the daemon's resident memory grew at the most, in bytes; and how late
    its event loop was at the most, in seconds."""

    rows: list[Row]
    memory_growth: int
    loop_lag: float


async def transfers(root: Path) -> Transfers:
    """256 MiB in one file, then 20,000 small ones."""
    rows: list[Row] = []
    growth, lag = 0, 0.0
    for what, fill in (("256 MiB, half text", half_compressible), ("20,000 x 4 KiB", many_small)):
        directory = root / fill.__name__
        async with daemons(directory, "root", RUNNER_CHECKPOINT_MAX_BYTES="1GiB") as (daemon,):
            await daemon.execute("print()", session=SESSION)
            fill(str(daemon.data_root / "workspace"))
            work = Work(daemon, directory)
            # Once before it is measured: what Python loads at the first use is no growth.
            await work.save()
            await work.restore()
            before = reset_peak(daemon.pid)
            saved = await in_turns(work.floor_save, work.save)
            restored = await in_turns(work.floor_restore, work.restore)
            growth = max(growth, peak(daemon.pid) - before)
            lag = max(lag, await loop_lag(daemon))
        rows.append(Row(f"checkpoint, {what}", "`tar \\| igzip -1`", *saved))
        rows.append(Row(f"restore, {what}", "`igzip -d \\| tar x`", *restored))
        shutil.rmtree(directory)
    return Transfers(rows, growth, lag)


class Work:
    """The four things that are timed."""

    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self._daemon = daemon
        self._ours = directory / "ours.tar.gz"
        self._floor = directory / "floor.tar.gz"
        self._unpacked = directory / "unpacked"

    async def save(self) -> float:
        return await self._curl("-o", str(self._ours), path="/session/checkpoint")

    async def restore(self) -> float:
        media_type = "Content-Type: application/x-gtar"
        how = ("-X", "POST", "-T", str(self._ours), "-H", "Expect:", "-H", media_type)
        return await self._curl(*how, "-o", "/dev/null", path="/session/restore")

    async def _curl(self, *options: str, path: str) -> float:
        """A client that costs little: with two cores, what it takes is missing elsewhere."""
        return await _run(
            "curl",
            "--silent",
            "--show-error",
            "--fail",
            "-H",
            f"X-Runtime-Session-Id: {SESSION}",
            *options,
            self._daemon.url + path,
        )

    async def floor_save(self) -> float:
        workspace = self._daemon.data_root / "workspace"
        return await shell(f"tar -C {workspace} -cf - . | igzip -1 > {self._floor}")

    async def floor_restore(self) -> float:
        self._unpacked.mkdir()
        try:
            return await shell(f"igzip -dc {self._floor} | tar -C {self._unpacked} -xpf -")
        finally:
            shutil.rmtree(self._unpacked)


async def shell(pipeline: str) -> float:
    """Runs it; the seconds that it took."""
    return await _run("sh", "-c", pipeline)


async def _run(*command: str) -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0
    return time.perf_counter() - began
