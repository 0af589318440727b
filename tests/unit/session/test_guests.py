"""Guests: turned out when they are proven gone, and looked at again where that was not at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from runner.errors import IncarnationMismatch, Internal, RunnerError
from runner.session import guests as guests_module
from runner.session.guests import Guests

WHY = IncarnationMismatch("a checkpoint is being restored")


class Visitor:
    """A guest that has ended as soon as it is dismissed; `is_gone` is what a look at it says."""

    def __init__(self, guests: Guests, *, is_gone: bool) -> None:
        self._guests = guests
        self.is_gone = is_gone
        guests.add(self)

    def dismiss(self, why: RunnerError) -> None:
        assert why is WHY
        if self.is_gone:
            self._guests.remove(self)
        else:
            self._guests.unproven(self)

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        yield

    async def gone(self) -> bool:
        return self.is_gone


async def test_who_is_proven_gone_is_turned_out_at_once() -> None:
    guests = Guests()
    for _ in range(2):
        Visitor(guests, is_gone=True)
    begun = time.monotonic()
    await guests.turn_out(WHY)
    assert not guests and time.monotonic() - begun < 1


async def test_who_is_gone_by_the_next_look_is_turned_out() -> None:
    guests = Guests()
    guest = Visitor(guests, is_gone=False)
    guest.dismiss(WHY)
    assert guests
    guest.is_gone = True
    begun = time.monotonic()
    await guests.turn_out(WHY)
    assert not guests and time.monotonic() - begun < 1


async def test_who_goes_while_it_is_waited_for_is_turned_out() -> None:
    guests = Guests()
    guest = Visitor(guests, is_gone=False)
    turning_out = asyncio.create_task(guests.turn_out(WHY))
    await asyncio.sleep(0.2)
    assert not turning_out.done()
    guest.is_gone = True
    await asyncio.wait_for(turning_out, 5)
    assert not guests


async def test_who_does_not_go_is_said_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests_module, "END_TIMEOUT", 0.3)
    guests = Guests()
    guest = Visitor(guests, is_gone=False)
    for _ in range(2):
        with pytest.raises(Internal):
            await guests.turn_out(WHY)
    guest.is_gone = True
    await guests.turn_out(WHY)
    assert not guests
