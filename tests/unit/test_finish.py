"""What must be finished is finished, however often its waiter is cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from runner.finish import finish, finish_in_thread


async def test_the_result_comes_back() -> None:
    async def seven() -> int:
        return 7

    assert await finish(seven()) == 7
    assert await finish_in_thread(pow, 2, 10) == 1024


async def test_a_failure_comes_back() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await finish(fail())


async def test_a_cancelled_waiter_waits_for_the_end_and_is_then_cancelled() -> None:
    begun, may_end, done = asyncio.Event(), asyncio.Event(), []

    async def work() -> None:
        begun.set()
        await may_end.wait()
        done.append("work")

    waiter = asyncio.create_task(finish(work()))
    await begun.wait()
    for _ in range(3):
        waiter.cancel()
        await asyncio.sleep(0)
    assert not waiter.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert done == ["work"]


async def test_a_failure_behind_a_cancelled_waiter_is_not_reported_as_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = asyncio.Event()

    async def fail() -> None:
        begun.set()
        await asyncio.sleep(0.01)
        raise ValueError("late")

    waiter = asyncio.create_task(finish(fail()))
    await begun.wait()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert "never retrieved" not in caplog.text


async def test_work_that_cancels_itself_ends_the_wait() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(finish(give_up()), 1)


async def test_a_thread_is_waited_for() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(5)

    waiter = asyncio.create_task(finish_in_thread(work))
    await asyncio.to_thread(begun.wait, 5)
    waiter.cancel()
    await asyncio.sleep(0.02)
    assert not waiter.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiter
