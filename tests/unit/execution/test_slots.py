"""Places: first come, first served; a bounded queue; a wait that is given up leaves no trace."""

from __future__ import annotations

import asyncio

import pytest

from runner.errors import Overloaded
from runner.execution.slots import QUEUE_FACTOR, Slots


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Guest:
    """One that takes a place and stays until it is told to leave."""

    def __init__(self, slots: Slots, order: list[int], number: int) -> None:
        self.leave = asyncio.Event()
        self._slots, self._order, self._number = slots, order, number
        self.task = asyncio.create_task(self._stay())

    async def _stay(self) -> None:
        async with self._slots.take():
            self._order.append(self._number)
            await self.leave.wait()


async def guests(slots: Slots, count: int) -> tuple[list[Guest], list[int]]:
    order: list[int] = []
    made = []
    for number in range(count):
        made.append(Guest(slots, order, number))
        await settle()
    return made, order


async def end(made: list[Guest]) -> None:
    for guest in made:
        guest.leave.set()
    await asyncio.gather(*(guest.task for guest in made), return_exceptions=True)


async def test_no_more_than_the_places_at_once_and_in_the_order_they_came() -> None:
    made, order = await guests(Slots(2, wait=5), 6)
    assert order == [0, 1]
    for number, guest in enumerate(made):
        guest.leave.set()
        await settle()
        assert order == list(range(min(number + 3, 6)))
    await end(made)


async def test_one_that_comes_as_a_place_is_freed_does_not_overtake() -> None:
    slots = Slots(1, wait=5)
    made, order = await guests(slots, 3)
    made[0].leave.set()
    # The place is free in this very turn of the loop, and two have waited for it.
    late = Guest(slots, order, 99)
    await settle()
    assert order == [0, 1]
    await end([*made, late])
    assert order == [0, 1, 2, 99]


async def test_a_wait_that_is_cancelled_gives_its_turn_to_the_next() -> None:
    made, order = await guests(Slots(1, wait=5), 3)
    made[1].task.cancel()
    await settle()
    made[0].leave.set()
    await settle()
    assert order == [0, 2]
    await end(made)


async def test_cancelling_the_one_whose_turn_it_has_just_become_loses_no_place() -> None:
    made, order = await guests(Slots(1, wait=5), 3)
    made[0].leave.set()
    await asyncio.sleep(0)
    made[1].task.cancel()
    await settle()
    assert order[-1] == 2
    await end(made)


async def test_the_queue_has_an_end() -> None:
    slots = Slots(1, wait=5)
    made, _ = await guests(slots, 1 + QUEUE_FACTOR)
    with pytest.raises(Overloaded) as refused:
        async with slots.take():
            pass
    assert refused.value.retry_after == 1
    made[1].task.cancel()
    await settle()
    late, _ = await guests(slots, 1)
    assert not late[0].task.done()
    await end([*made, *late])


async def test_a_wait_has_an_end() -> None:
    slots = Slots(1, wait=0.02)
    made, order = await guests(slots, 1)
    with pytest.raises(Overloaded):
        async with slots.take():
            pass
    made[0].leave.set()
    await settle()
    async with slots.take():
        pass
    assert order == [0]
