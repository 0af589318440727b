"""Who is inside the gate when it is closed, and who comes while it is."""

from __future__ import annotations

import asyncio

import pytest

from runner.errors import Internal, Overloaded, SessionBusy
from runner.vm import gate as gates
from runner.vm.gate import Gate


async def test_who_comes_while_it_is_closed_is_refused() -> None:
    gate = Gate()
    async with gate.closed(), gate.closed():
        with pytest.raises(Overloaded) as told:
            async with gate.inside():
                pytest.fail("it got in")
    assert (told.value.reason, told.value.retry_after, told.value.retryable) == (
        "terminating",
        1,
        True,
    )
    async with gate.inside():
        assert len(gate) == 1


async def test_who_is_inside_is_cancelled_and_told_why() -> None:
    gate = Gate()
    cleared = []

    async def visit() -> None:
        async with gate.inside(SessionBusy):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)
                cleared.append(len(gate))

    visiting = asyncio.create_task(visit())
    await asyncio.sleep(0)
    async with gate.closed(), gate.closed():
        await gate.emptied()
        assert (cleared, len(gate)) == ([1], 0)
    with pytest.raises(SessionBusy):
        await visiting
    assert visiting.cancelling() == 0


async def test_a_client_that_leaves_is_no_refusal() -> None:
    gate = Gate()

    async def visit() -> None:
        async with gate.inside():
            await asyncio.sleep(60)

    visiting = asyncio.create_task(visit())
    await asyncio.sleep(0)
    async with gate.closed():
        visiting.cancel()
        await gate.emptied()
    with pytest.raises(asyncio.CancelledError):
        await visiting


async def test_who_ends_by_itself_is_asked_to_and_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gates, "LEAVE_TIMEOUT", 0.05)
    gate = Gate()
    asked, free = asyncio.Event(), asyncio.Event()

    async def visit() -> str:
        async with gate.inside(leave=asked.set):
            await free.wait()
            return "its own end"

    visiting = asyncio.create_task(visit())
    await asyncio.sleep(0)
    async with gate.closed():
        assert asked.is_set()
        with pytest.raises(Internal):
            await gate.emptied()
        free.set()
        await gate.emptied()
    assert await visiting == "its own end"
