"""A checkpoint after a turn over 20,000 files: unchanged (304), or one file changed (a delta).

The floors walk the same tree in C: `find` that prints a ctime for each file, and GNU tar's own
incremental archive. Needs `find` and `tar`.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.checkpoint import many_small
from tests.bench.measuring import Row, in_turns, loop_lag
from tests.bench.transfer import SESSION, shell
from tests.harness import Daemon, daemons

_CHANGED = "d050/f100"


@dataclass(frozen=True, slots=True)
class Turns:
    """The rows; the seconds of a 304; and how late the event loop was at the most meanwhile."""

    rows: list[Row]
    unchanged: float
    loop_lag: float


async def turns(root: Path) -> Turns:
    """Both, on one daemon."""
    async with daemons(root, "root", RUNNER_CHECKPOINT_MAX_BYTES="1GiB") as (daemon,):
        await daemon.execute("print()", session=SESSION)
        work = Work(daemon, root)
        many_small(str(work.workspace))
        await work.prepare()
        unchanged = await in_turns(work.floor_walk, work.unchanged)
        changed = await in_turns(work.floor_incremental, work.delta)
        lag = await loop_lag(daemon)
    shutil.rmtree(root)
    return Turns(
        [
            Row("304, 20,000 x 4 KiB", "`find -printf`", *unchanged),
            Row("delta, 1 of 20,000 files changed", "`tar -g \\| igzip -1`", *changed),
        ],
        unchanged[1],
        lag,
    )


class Work:
    """What is timed."""

    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self.workspace = daemon.data_root / "workspace"
        self._daemon = daemon
        self._directory = directory
        self._etag = ""

    async def prepare(self) -> None:
        """The state that everything is held against."""
        self._etag = (await self._daemon.checkpoint(SESSION)).headers["ETag"]
        await shell(f"tar -C {self.workspace} -g {self._directory}/base -cf /dev/null .")

    async def unchanged(self) -> float:
        began = time.perf_counter()
        reply = await self._daemon.checkpoint(SESSION, headers={"If-None-Match": self._etag})
        assert reply.status == 304
        return time.perf_counter() - began

    async def floor_walk(self) -> float:
        return await shell(f"find {self.workspace} -printf '%C@ %i %s %m\\n' > /dev/null")

    async def delta(self) -> float:
        (self.workspace / _CHANGED).write_bytes(b"x" * 4096)
        began = time.perf_counter()
        reply = await self._daemon.checkpoint(SESSION, headers={"If-Checkpoint-Base": self._etag})
        assert reply.headers["X-Checkpoint-Kind"] == "delta"
        return time.perf_counter() - began

    async def floor_incremental(self) -> float:
        (self.workspace / _CHANGED).write_bytes(b"x" * 4096)
        base, out = f"{self._directory}/base", f"{self._directory}/incremental"
        shutil.copy(base, f"{base}.copy")
        tar = f"tar -C {self.workspace} -g {base}.copy -cf - ."
        return await shell(f"{tar} | igzip -1 > {out}")
