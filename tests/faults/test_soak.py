"""A short soak: the long one is `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import Daemon
from tests.leftovers import TEST_UID
from tests.soak import Measure, Soak, grown

COUNT = 150


@pytest.mark.long
async def test_nothing_grows(fast_dir: Path) -> None:
    async with Daemon(fast_dir / "data", {"RUNNER_SESSION_UID": str(TEST_UID)}) as daemon:
        soak, measures = Soak(daemon), list[Measure]()
        await soak.run(COUNT, tell=measures.append)
    # So few say nothing of the memory yet: the daemon is still warming up.
    found = [line for line in grown(measures) if not line.startswith("resident memory")]
    assert found == [], measures
    assert sum(soak.kinds.values()) >= COUNT


def measured(executed: int, **more: int) -> Measure:
    quiet = {"rss_kib": 60_000, "fds": 20, "threads": 6, "tasks": 7}
    none = {"cgroups": 0, "temp_files": 0, "processes": 0}
    return Measure(executed=executed, seconds=1.0, **(quiet | none | more))


@pytest.mark.parametrize(
    ("name", "value"),
    [("rss_kib", 70_000), ("fds", 40), ("threads", 9), ("tasks", 12), ("cgroups", 1),
     ("temp_files", 1), ("processes", 1)],
)  # fmt: skip
def test_a_leak_is_seen(name: str, value: int) -> None:
    measures = [measured(n) for n in range(10)] + [measured(n, **{name: value}) for n in range(10)]
    assert len(grown(measures)) == 1
    assert grown(measures[:10]) == []
