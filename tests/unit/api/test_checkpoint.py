"""A client that does not take its checkpoint does not hold the session for ever."""

from __future__ import annotations

import asyncio

import pytest

from runner.api import checkpoint


async def test_a_client_that_stops_reading_is_as_good_as_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "IDLE_TIMEOUT", 0.01)
    later = asyncio.get_running_loop().time() + 60
    with pytest.raises(ConnectionError):
        await checkpoint._taken(asyncio.Event().wait(), later)  # type: ignore[arg-type]


async def test_one_that_takes_a_byte_now_and_then_is_cut_in_the_end() -> None:
    soon = asyncio.get_running_loop().time() + 0.01
    with pytest.raises(ConnectionError):
        await checkpoint._taken(asyncio.sleep(1), soon)
    await checkpoint._taken(asyncio.sleep(0), soon + 60)
