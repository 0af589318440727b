"""Long work has threads of its own, and nobody's cancelled work goes on."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from runner.longwork import LongWork
from runner.workspace.stopping import Stop, Stopped


async def test_what_the_work_returns_or_raises_comes_back() -> None:
    lane = LongWork("test", threads=1)
    assert await lane.run(lambda _: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await lane.run(lambda _: 1 // 0)


class Endless:
    """Works until it is told to stop."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()

    def __call__(self, stop: Stop) -> None:
        self.begun.set()
        try:
            while True:
                stop.check()
                time.sleep(0.001)
        except Stopped:
            time.sleep(0.05)
            self.ended.set()
            raise


async def test_a_cancelled_waiter_stops_the_work_and_sees_it_end() -> None:
    lane, work = LongWork("test", threads=1), Endless()
    waiter = asyncio.create_task(lane.run(work))
    await asyncio.to_thread(work.begun.wait, 5)
    waiter.cancel()
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert work.ended.is_set()
    assert await lane.run(lambda _: "free") == "free"


async def test_who_is_cancelled_in_turn_waits_for_nobody() -> None:
    lane, work, never = LongWork("test", threads=1), Endless(), Endless()
    first = asyncio.create_task(lane.run(work))
    await asyncio.to_thread(work.begun.wait, 5)
    second = asyncio.create_task(lane.run(never))
    await asyncio.sleep(0.01)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert not first.done()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not never.begun.is_set()
