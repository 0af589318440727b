"""Hand-overs: bounded, ended, failed and left, from either side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest

from runner.checkpoint.handover import (
    AbandonedError,
    Handover,
    HandoverFromLoop,
    HandoverToLoop,
    Stage,
)

WAIT = 5.0


def numbers(count: int) -> Generator[bytes, None, None]:
    for number in range(count):
        yield b"%d" % number


def endless(closed: threading.Event) -> Generator[bytes, None, None]:
    try:
        while True:
            yield b"x"
    finally:
        closed.set()


def test_blocks_come_out_in_order_and_end() -> None:
    with Stage(numbers(1000), Handover(3), name="test") as blocks:
        assert list(blocks) == list(numbers(1000))


def test_a_failure_comes_out_behind_what_was_written() -> None:
    def failing() -> Generator[bytes, None, None]:
        yield b"first"
        raise LookupError

    with Stage(failing(), Handover(3), name="test") as blocks:
        assert next(blocks) == b"first"
        with pytest.raises(LookupError):
            next(blocks)


def test_a_writer_stays_within_the_bound() -> None:
    handover, written = Handover(3), []

    def write() -> None:
        for number in range(10):
            handover.put(b"x")
            written.append(number)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(0.1)
    assert len(written) == 3
    blocks = iter(handover)
    for _ in range(10):
        next(blocks)
    thread.join(WAIT)
    assert len(written) == 10


def test_leaving_a_stage_closes_its_generator() -> None:
    closed = threading.Event()
    with Stage(endless(closed), Handover(1), name="test") as blocks:
        next(blocks)
    assert closed.is_set()


def test_leaving_a_stage_frees_a_generator_that_waits_upstream() -> None:
    upstream = Handover(1)

    def relayed() -> Generator[bytes, None, None]:
        yield b"first"
        yield from upstream

    with Stage(relayed(), Handover(1), name="test", upstream=upstream) as blocks:
        assert next(blocks) == b"first"
    with pytest.raises(AbandonedError):
        upstream.put(b"x")


async def test_from_a_thread_to_the_loop() -> None:
    out = HandoverToLoop(2)
    stage = Stage(numbers(100), out, name="test")
    stage.start()
    seen = []
    while (block := await out.get()) is not None:
        seen.append(block)
    stage.stop()
    assert seen == list(numbers(100))


async def test_from_the_loop_to_a_thread() -> None:
    incoming = HandoverFromLoop(2)
    reading = asyncio.create_task(asyncio.to_thread(list, incoming))
    for block in numbers(100):
        await incoming.put_async(block)
    incoming.end()
    assert await reading == list(numbers(100))


async def test_the_loop_waits_for_room_and_is_freed_when_the_reader_leaves() -> None:
    incoming = HandoverFromLoop(2)
    await incoming.put_async(b"1")
    await incoming.put_async(b"2")
    writing = asyncio.create_task(incoming.put_async(b"3"))
    await asyncio.sleep(0.05)
    assert not writing.done()
    incoming.abandon()
    with pytest.raises(AbandonedError):
        await asyncio.wait_for(writing, WAIT)
    with pytest.raises(AbandonedError):
        await asyncio.wait_for(incoming.put_async(b"4"), WAIT)
