"""A client that neither sends nor takes is not waited for for ever."""

from __future__ import annotations

import asyncio

import pytest

from runner.api.patience import Patience


async def test_a_client_that_stops_reading_is_as_good_as_gone() -> None:
    later = asyncio.get_running_loop().time() + 60
    with pytest.raises(ConnectionError):
        async with Patience(0.01, later).writing():
            await asyncio.Event().wait()


async def test_one_that_takes_a_byte_now_and_then_is_cut_in_the_end() -> None:
    soon = asyncio.get_running_loop().time() + 0.05
    patience = Patience(60, soon)
    with pytest.raises(ConnectionError):
        while True:
            async with patience.writing():
                await asyncio.sleep(0.001)


async def test_a_wait_for_bytes_ends_by_its_own_name() -> None:
    later = asyncio.get_running_loop().time() + 60
    with pytest.raises(TimeoutError):
        async with Patience(0.01, later).waiting():
            await asyncio.sleep(1)
