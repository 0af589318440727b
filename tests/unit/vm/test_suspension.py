"""A jump between the clocks is noticed.

No test can suspend the machine it runs on, and a time namespace only sets the clocks apart from
the start: the jump itself is given by a reader of the test's own. That a distance from the start is
no jump is shown on a real daemon in tests/e2e/test_platform_hooks.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import jail
from runner.vm.suspension import JUMP, SuspensionWatch, distance

TICK = 0.001


class Clock:
    """Says how far the clocks are apart, and how often it was asked."""

    def __init__(self, apart: float) -> None:
        self.apart = apart
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.apart

    async def looked_at(self, times: int = 3) -> None:
        wanted = self.asked + times
        async with asyncio.timeout(5):
            while self.asked < wanted:
                await asyncio.sleep(TICK)


@pytest.fixture
async def watched() -> tuple[Clock, SuspensionWatch, list[float]]:
    clock, noticed = Clock(apart=86_400.0), list[float]()

    async def on_resume(seconds: float) -> None:
        noticed.append(seconds)

    watch = SuspensionWatch(on_resume, read=clock, interval=TICK)
    watch.start()
    return clock, watch, noticed


Watched = tuple[Clock, SuspensionWatch, list[float]]


async def test_each_suspend_is_noticed_once(watched: Watched) -> None:
    clock, watch, noticed = watched
    for seconds in (60.0, 0.5):
        clock.apart += seconds
        await clock.looked_at()
    await watch.stop()
    assert noticed == [pytest.approx(60.0), pytest.approx(0.5)]


async def test_what_stands_apart_from_the_start_and_noise_are_no_suspend(watched: Watched) -> None:
    clock, watch, noticed = watched
    for seconds in (JUMP / 2, -JUMP / 2, JUMP / 2):
        clock.apart += seconds
        await clock.looked_at()
    await watch.stop()
    assert noticed == []


async def test_a_suspend_that_the_platform_told_of_is_not_noticed_again(watched: Watched) -> None:
    clock, watch, noticed = watched
    clock.apart += 60
    watch.told()
    await clock.looked_at()
    await watch.stop()
    assert noticed == []


def test_the_clocks_of_this_machine_can_be_read() -> None:
    assert distance() == pytest.approx(distance(), abs=JUMP)


def test_no_deadline_of_running_code_is_on_a_clock_that_counts_suspended_time() -> None:
    """CLOCK_MONOTONIC stands still while the system is suspended; these do not, or may be set."""
    wrong = ("time.time", "CLOCK_BOOTTIME", "CLOCK_REALTIME", "gettimeofday", "datetime")
    sources = [
        path
        for path in Path(jail.__file__).parent.rglob("*")
        if path.suffix in {".py", ".c"} and path.is_file()
    ]
    assert sources
    for path in sources:
        text = path.read_text("utf-8")
        assert not [word for word in wrong if word in text], path
