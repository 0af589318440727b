"""A restore over several requests: whoever does not come back has failed it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runner.errors import BadRequest, CheckpointCorrupt, SessionBusy
from runner.session import sequence
from runner.session.sequence import Sequence


class Feeding:
    """What a request feeds, without the archives."""

    def __init__(self) -> None:
        self.committed = False
        self.begun = 0

    def begin_archive(self) -> None:
        self.begun += 1


class Begun:
    """Holds the session while it is entered, and keeps how it was left."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal
        self.feeding = Feeding()
        self.left_by: BaseException | str | None = "not yet"

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Any]:
        if self.refusal is not None:
            raise self.refusal
        try:
            yield self.feeding
        except BaseException as error:
            self.left_by = error
            raise
        self.left_by = None


async def turn(each: Sequence, *, key: bytes | None = None) -> None:
    async with each.turn(key=key):
        pass


async def test_it_holds_the_session_from_the_first_request_to_the_commit() -> None:
    begun = Begun()
    each = Sequence(begun(), key=None)
    await turn(each)
    await turn(each)
    assert not each.is_over
    async with each.turn(key=None) as feeding:
        feeding.committed = True  # type: ignore[misc]
    assert each.is_over and begun.left_by is None
    assert begun.feeding.begun == 3


async def test_a_client_that_does_not_come_back_has_failed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequence, "NEXT_TIMEOUT", 0.05)
    begun = Begun()
    each = Sequence(begun(), key=None)
    await turn(each)
    await asyncio.sleep(0.2)
    assert each.is_over
    assert isinstance(begun.left_by, CheckpointCorrupt) and begun.left_by.reason == "stalled"


async def test_a_request_stops_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "NEXT_TIMEOUT", 0.1)
    each = Sequence(Begun()(), key=None)
    await turn(each)
    async with each.turn(key=None):
        await asyncio.sleep(0.2)
    assert not each.is_over
    await each.aclose()


async def test_a_request_that_fails_ends_it_before_it_is_answered() -> None:
    begun = Begun()
    each = Sequence(begun(), key=None)
    with pytest.raises(CheckpointCorrupt):
        async with each.turn(key=None):
            raise CheckpointCorrupt("damaged")
    assert each.is_over and isinstance(begun.left_by, CheckpointCorrupt)


async def test_a_client_that_leaves_in_the_middle_ends_it() -> None:
    begun = Begun()
    each = Sequence(begun(), key=None)
    entered = asyncio.Event()

    async def stay() -> None:
        async with each.turn(key=None):
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(stay())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert each.is_over and isinstance(begun.left_by, CheckpointCorrupt)


async def test_one_request_at_a_time_and_with_the_same_key() -> None:
    each = Sequence(Begun()(), key=b"k")
    async with each.turn(key=b"k"):
        with pytest.raises(SessionBusy):
            await turn(each, key=b"k")
    with pytest.raises(BadRequest):
        await turn(each, key=b"other")
    assert not each.is_over
    await each.aclose()
    assert each.is_over


async def test_what_keeps_it_from_beginning_is_told() -> None:
    each = Sequence(Begun(SessionBusy("it is busy"))(), key=None)
    with pytest.raises(SessionBusy, match="it is busy"):
        await turn(each)
    assert each.is_over


async def test_whoever_ends_the_session_ends_it() -> None:
    each = Sequence(Begun()(), key=None)
    with pytest.raises(SessionBusy):
        async with each.turn(key=None):
            await each.aclose()
            raise CheckpointCorrupt("the archive is truncated")
