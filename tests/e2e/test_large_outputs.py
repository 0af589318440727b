"""What one program leaves to be hashed is nobody else's wait, and ends when nobody waits for it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.fileserver import FileServer
from tests.harness import Daemon

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.alone]

#: Gigabytes in no time: they are holes.
HOLES = "for n in range(9): open(f's{n}', 'wb').truncate(500 << 20)"
#: So many idle executions may one take beside others' hashing. It was hundreds.
PROMPT = 10


async def seconds(work: Awaitable[Any]) -> float:
    begun = time.monotonic()
    await work
    return time.monotonic() - begun


async def idle(daemon: Daemon) -> float:
    """What an execution takes when there is nothing else to do."""
    return min([await seconds(daemon.execute("print(1)")) for _ in range(3)])


def cpu(daemon: Daemon) -> float:
    """Seconds that the daemon itself has computed."""
    with open(f"/proc/{daemon.pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def hashing(daemon: Daemon, count: int, **order: Any) -> AsyncIterator[list[Any]]:
    """While the outputs of so many programs are hashed; their clients leave at the end."""
    before = cpu(daemon)
    tasks = [asyncio.create_task(daemon.execute(HOLES, **order)) for _ in range(count)]
    try:
        async with asyncio.timeout(10):
            while cpu(daemon) < before + 0.3:
                await asyncio.sleep(0.02)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_nobody_waits_for_the_hashing_of_others(launch: Callable[..., Any]) -> None:
    async with FileServer() as server:
        daemon: Daemon = await launch(RUNNER_FILE_SERVER_URL=server.url)
        await daemon.execute("pass", session=SESSION)
        alone = await idle(daemon)
        async with hashing(daemon, 7) as tasks:
            took = await asyncio.gather(
                seconds(daemon.execute("print(1)")),
                seconds(daemon.execute("print(1)", session=SESSION)),
                seconds(daemon.get("/session/files", session=SESSION)),
                seconds(daemon.request("PUT", "/session/files/f", session=SESSION, data=b"x")),
            )
            assert not all(task.done() for task in tasks)
        assert max(took) < PROMPT * alone, (took, alone)


async def test_a_client_that_leaves_takes_its_hashing_along(launch: Callable[..., Any]) -> None:
    async with FileServer() as server:
        daemon: Daemon = await launch(RUNNER_FILE_SERVER_URL=server.url)
        await daemon.execute("pass", session=SESSION)
        alone = await idle(daemon)
        async with hashing(daemon, 1, session=SESSION) as tasks:
            assert not tasks[0].done()
        # Without them there is nothing to be hashed behind this one either.
        tidy = "import os; [os.unlink(f's{n}') for n in range(9)]"
        assert await seconds(daemon.execute(tidy, session=SESSION)) < PROMPT * alone
        assert server.requests("PUT") == []


async def test_what_no_result_can_carry_costs_no_time(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("pass", session=SESSION)
    alone = await idle(daemon)
    begun = time.monotonic()
    reply = await daemon.execute(HOLES, session=SESSION)
    assert time.monotonic() - begun < PROMPT * alone
    assert [(each["name"], each["reason"], each["size"]) for each in reply.json["skipped"]] == [
        (f"s{n}", "inline_budget", 500 << 20) for n in range(9)
    ]
    href = reply.json["skipped"][0]["href"]
    head = await daemon.get(href, session=SESSION, headers={"Range": "bytes=0-3"})
    assert (head.status, head.body) == (206, bytes(4))
