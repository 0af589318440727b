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


async def test_what_nobody_gets_is_disposed_of() -> None:
    begun, may_end, disposed = threading.Event(), threading.Event(), []

    def open_it() -> str:
        begun.set()
        may_end.wait(5)
        return "it"

    waiter = asyncio.create_task(finish(asyncio.to_thread(open_it), dispose=disposed.append))
    await asyncio.to_thread(begun.wait, 5)
    waiter.cancel()
    await asyncio.sleep(0.02)
    assert not disposed
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert disposed == ["it"]


async def test_what_is_there_when_its_waiter_is_cancelled_is_disposed_of_too() -> None:
    """The cancellation comes after the end of the work and before the waiter goes on."""
    disposed: list[str] = []

    async def work() -> str:
        asyncio.get_running_loop().call_soon(waiter.cancel)
        return "it"

    waiter = asyncio.create_task(finish(work(), dispose=disposed.append))
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert disposed == ["it"]


async def test_a_disposal_is_finished_too() -> None:
    begun, may_end, disposed = threading.Event(), threading.Event(), []

    def dispose(it: str) -> None:
        begun.set()
        may_end.wait(5)
        disposed.append(it)

    async def work() -> str:
        asyncio.get_running_loop().call_soon(waiter.cancel)
        return "it"

    waiter = asyncio.create_task(finish(work(), dispose=dispose))
    await asyncio.to_thread(begun.wait, 5)
    for _ in range(3):
        waiter.cancel()
        await asyncio.sleep(0)
    assert not waiter.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert disposed == ["it"]


async def test_what_is_received_is_not_disposed_of() -> None:
    async def work() -> str:
        return "it"

    async def fail() -> str:
        raise ValueError("no")

    disposed: list[str] = []
    assert await finish(work(), dispose=disposed.append) == "it"
    with pytest.raises(ValueError, match="no"):
        await finish(fail(), dispose=disposed.append)
    assert disposed == []


@pytest.mark.parametrize("failing", ["work", "dispose"])
async def test_a_failure_that_nobody_gets_is_logged(
    caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    async def work() -> str:
        asyncio.get_running_loop().call_soon(waiter.cancel)
        if failing == "work":
            raise OSError("work")
        return "it"

    def dispose(_: str) -> None:
        raise OSError("dispose")

    waiter = asyncio.create_task(finish(work(), dispose=dispose))
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert [str(record.exc_info and record.exc_info[1]) for record in caplog.records] == [failing]
