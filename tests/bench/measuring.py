"""What the benchmarks share: rows, medians, and a daemon's memory."""

from __future__ import annotations

import re
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.harness import Daemon

#: Each measurement is taken this often, in turns with its floor, and the medians are compared:
#: the neighbours' load falls on both.
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Times in seconds; `ratio` is ours in speeds of the floor."""

    what: str
    floor_name: str
    floor: float
    ours: float

    @property
    def ratio(self) -> float:
        """1 is as fast as the floor, 0.5 half as fast."""
        return self.floor / self.ours

    def __str__(self) -> str:
        floor, ours = f"{self.floor * 1000:10.1f}", f"{self.ours * 1000:10.1f}"
        return f"| {self.what} | {self.floor_name} | {floor} | {ours} | {self.ratio:.2f} |"


_LAG = re.compile(rb"^runner_loop_lag_max_seconds (\S+)$", re.MULTILINE)

HEADER = "| what | floor | floor, ms | ours, ms | ratio |\n|---|---|---|---|---|"


async def in_turns(
    floor: Callable[[], Awaitable[float]],
    ours: Callable[[], Awaitable[float]],
    *,
    rounds: int = ROUNDS,
) -> tuple[float, float]:
    """The medians of both; each function returns the seconds that it took."""
    floors, taken = [], []
    for _ in range(rounds):
        floors.append(await floor())
        taken.append(await ours())
    return statistics.median(floors), statistics.median(taken)


def reset_peak(pid: int) -> int:
    """Starts a new peak of resident memory and returns the present one, in bytes."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    return peak(pid)


def peak(pid: int) -> int:
    """The peak of resident memory since `reset_peak`, in bytes (proc(5), VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise ValueError("the kernel does not say VmHWM")


async def loop_lag(daemon: Daemon) -> float:
    """How late the daemon's event loop ever was, in seconds."""
    found = _LAG.search((await daemon.get("/metrics")).body)
    assert found is not None
    return float(found[1])
