"""Many jails at once: no start fails, and none waits behind a gate of ours."""

from __future__ import annotations

import asyncio

from jail.facts import Ending, Facts
from jail.host import JailHost
from jail.process import Jail
from jail.profile import MEMORY_MIN
from tests.jail.conftest import ProfileMaker


async def test_two_hundred_starts_at_eight_at_once_all_succeed(
    host: JailHost, profile: ProfileMaker
) -> None:
    async def some(numbers: range) -> list[Facts]:
        return [
            await Jail(host, profile("sh", "-c", f"echo {number}; exit {number % 100}")).run()
            for number in numbers
        ]

    columns = await asyncio.gather(*(some(range(start, 200, 8)) for start in range(8)))
    for start, column in enumerate(columns):
        for number, facts in zip(range(start, 200, 8), column, strict=True):
            assert facts.started and facts.proven_empty, facts
            assert facts.wait_status == (number % 100) << 8
            assert facts.stdout.kept == f"{number}\n".encode()


async def test_the_least_memory_that_may_be_asked_for_is_enough_to_start(
    host: JailHost, profile: ProfileMaker
) -> None:
    for _ in range(5):
        least = profile("true", memory_bytes=MEMORY_MIN)
        for facts in await asyncio.gather(*(Jail(host, least).run() for _ in range(8))):
            assert facts.wait_status == 0, facts


async def test_the_loop_stays_free_while_jails_start(host: JailHost, profile: ProfileMaker) -> None:
    worst = 0.0
    done = False

    async def look() -> None:
        nonlocal worst
        loop = asyncio.get_running_loop()
        while not done:
            before = loop.time()
            await asyncio.sleep(0.001)
            worst = max(worst, loop.time() - before)

    looking = asyncio.create_task(look())
    for _ in range(3):
        await asyncio.gather(*(Jail(host, profile("true")).run() for _ in range(4)))
    done = True
    await looking
    # /health promises an answer in 250 ms whatever the jails do.
    assert worst < 0.2


async def test_a_start_is_said_before_any_output_however_short_the_command(
    host: JailHost, profile: ProfileMaker
) -> None:
    async def one() -> tuple[Facts, list[str]]:
        seen: list[str] = []

        async def sink(stream: str, data: bytes) -> None:
            seen.append(data.decode())

        echo = profile("echo", "xyz", output_bytes=1)
        jail = Jail(host, echo, sink=sink, on_started=lambda: seen.append("started"))
        return await jail.run(), seen

    for _ in range(10):
        for facts, seen in await asyncio.gather(*(one() for _ in range(20))):
            # Over its limit before init could say that it runs: still a command that ran.
            assert facts.started and facts.setup_failure is None, facts
            assert seen == ["started", "x"]
            assert facts.ended_by in (None, Ending.OUTPUT_LIMIT) and facts.stdout.truncated
