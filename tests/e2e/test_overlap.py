"""Operations of one session at the same time: one waits or is told so, and none is harmed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def executing(daemon: Daemon, seconds: float) -> AsyncIterator[asyncio.Task[Any]]:
    """While the session is held by a program that sleeps."""
    code = f"open('log', 'a').write('first '); import time; time.sleep({seconds})"
    task = asyncio.create_task(daemon.execute(code, session=SESSION, name="first.py"))
    while (await daemon.get("/health")).json["session"]["state"] != "executing":
        await asyncio.sleep(0.005)
    yield task
    assert (await task).json["run"]["outcome"]["kind"] == "exited"


async def test_the_second_execute_waits_for_the_first(runner: Daemon) -> None:
    async with executing(runner, 0.5) as first:
        second = await runner.execute("open('log', 'a').write('second')", session=SESSION)
        assert first.done()
    assert second.status == 200
    assert (await runner.file(SESSION, "log")).body == b"first second"


async def test_ten_at_once_lose_nothing(runner: Daemon) -> None:
    await runner.execute("open('n', 'w').write('0')", session=SESSION)
    code = "n = int(open('n').read()); open('n', 'w').write(str(n + 1))"
    replies = await asyncio.gather(
        *(runner.execute(code, session=SESSION, name=f"f{n}.py") for n in range(10))
    )
    assert {reply.status for reply in replies} == {200}
    assert (await runner.file(SESSION, "n")).body == b"10"


async def test_a_stateless_run_does_not_wait_for_the_session(runner: Daemon) -> None:
    async with executing(runner, 1) as first:
        reply = await runner.execute("print(1)")
        assert reply.json["run"]["stdout"] == "1\n" and not first.done()


@pytest.mark.alone
@pytest.mark.parametrize("path", ["/health", "/health?level=alive", "/metrics", "/runtimes"])
async def test_looking_at_the_runner_never_waits(runner: Daemon, path: str) -> None:
    async with executing(runner, 0.6) as first:
        begun = time.monotonic()
        reply = await runner.get(path)
        assert reply.status == 200 and time.monotonic() - begun < 0.25
        assert not first.done()


async def test_files_can_be_read_while_a_program_runs(runner: Daemon) -> None:
    async with executing(runner, 0.6) as first:
        assert "first.py" in await runner.paths(SESSION)
        assert (await runner.file(SESSION, "first.py")).status == 200
        assert not first.done()


async def test_who_waits_too_long_is_told_to_come_back(launch: Callable[..., Any]) -> None:
    impatient: Daemon = await launch(RUNNER_LOCK_WAIT="100ms")
    await impatient.execute("pass", session=SESSION)
    async with executing(impatient, 1.5):
        for reply in (
            await impatient.execute("print(2)", session=SESSION, name="second.py"),
            await impatient.checkpoint(SESSION),
            await impatient.restore(SESSION, b"not even an archive"),
        ):
            error = reply.json
            assert (reply.status, error["error"]) == (409, "session_busy")
            assert (error["retryable"], error["recycle"]) == (True, False)
            assert int(reply.headers["Retry-After"]) >= 1
    # It was refused before it began: the restore has wiped nothing, and the session is not dirty.
    assert await impatient.paths(SESSION) == ["first.py", "log", "main"]
    health = (await impatient.get("/health")).json
    assert (health["session"]["state"], health["session"]["dirty"]) == ("ready", None)
    assert (await impatient.execute("print(3)", session=SESSION)).json["run"]["stdout"] == "3\n"


async def test_more_stateless_runs_than_places_wait_their_turn(launch: Callable[..., Any]) -> None:
    narrow: Daemon = await launch(RUNNER_MAX_JOBS="1", RUNNER_QUEUE_WAIT="300ms")
    replies = await asyncio.gather(
        *(narrow.execute("import time; time.sleep(0.25)") for _ in range(4))
    )
    told = sorted(reply.status for reply in replies)
    assert told[0] == 200 and told[-1] == 429
    refused = next(reply for reply in replies if reply.status == 429)
    assert (refused.json["error"], refused.json["retryable"]) == ("overloaded", True)
    assert int(refused.headers["Retry-After"]) >= 1


async def test_a_client_that_leaves_takes_its_jail_along(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("pass", session=SESSION)
    async with executing_until_we_leave(daemon):
        pass
    begun = time.monotonic()
    reply = await daemon.execute("print('next')", session=SESSION)
    assert reply.json["run"]["stdout"] == "next\n" and time.monotonic() - begun < 1.5


@asynccontextmanager
async def executing_until_we_leave(daemon: Daemon) -> AsyncIterator[None]:
    task = asyncio.create_task(
        daemon.execute("import time; time.sleep(25)", session=SESSION, name="long.py")
    )
    while (await daemon.get("/health")).json["session"]["state"] != "executing":
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait({task})
    yield
