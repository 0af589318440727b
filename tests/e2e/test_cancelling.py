"""Ending an execution: by leaving, by DELETE, by stopping the daemon. Nothing of it goes on."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.events import streamed
from tests.harness import Daemon, Reply
from tests.leftovers import TEST_UID, processes_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLEEPER = "echo begun; echo x > begun; exec sleep 61"


def sleepers() -> list[str]:
    return [line for line in processes_of(TEST_UID) if "sleep\x0061" in line]


async def until_begun(count: int = 1) -> None:
    async with asyncio.timeout(10):
        while len(sleepers()) < count:
            await asyncio.sleep(0.01)


async def abandon(daemon: Daemon, *, events: bool, **order: Any) -> None:
    """Asks for SLEEPER and drops the connection once it runs."""
    if events:
        async with streamed(daemon, SLEEPER, **order) as stream:
            await stream.until("stdout")
    else:
        task = asyncio.create_task(daemon.execute(SLEEPER, language="bash", **order))
        await until_begun()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("events", [False, True], ids=["plain", "streaming"])
@pytest.mark.parametrize("session", [None, SESSION], ids=["stateless", "session"])
async def test_a_client_that_leaves_takes_its_program_along(
    runner: Daemon, events: bool, session: str | None
) -> None:
    await abandon(runner, events=events, session=session)
    async with asyncio.timeout(3):
        while sleepers():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("events", [False, True], ids=["plain", "streaming"])
async def test_the_session_is_free_only_when_the_program_is_gone(
    runner: Daemon, events: bool
) -> None:
    async with streamed(runner, SLEEPER, session=SESSION) as first:
        await first.until("stdout")
        waiting = asyncio.create_task(runner.execute("echo next", language="bash", session=SESSION))
        await asyncio.sleep(0.1)
        assert len(sleepers()) == 1 and not waiting.done()
    async with streamed(runner, "echo soon", session=SESSION) as third:
        await third.until("started")
        assert sleepers() == []
    assert (await waiting).json["run"]["stdout"] == "next\n"


async def cancelled_so_far(daemon: Daemon) -> int:
    text = (await daemon.get("/metrics")).body.decode()
    found = re.search(r'runner_outcomes_total\{.*kind="cancelled".*\} (\d+)', text)
    return int(found[1]) if found else 0


async def test_a_client_that_leaves_the_queue_gives_its_place_up(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch(RUNNER_MAX_JOBS="1")
    async with streamed(daemon, SLEEPER) as first:
        await first.until("stdout")
        leaver = asyncio.create_task(daemon.execute("sleep 62", language="bash"))
        await asyncio.sleep(0.1)
        stayer = asyncio.create_task(daemon.execute("echo my turn", language="bash"))
        await asyncio.sleep(0.1)
        leaver.cancel()
        async with asyncio.timeout(3):
            while await cancelled_so_far(daemon) < 1:
                await asyncio.sleep(0.02)
        assert not stayer.done()
    assert (await asyncio.wait_for(stayer, 5)).json["run"]["stdout"] == "my turn\n"


async def test_a_client_that_leaves_while_the_session_is_busy_never_runs(runner: Daemon) -> None:
    async with streamed(runner, SLEEPER, session=SESSION) as first:
        await first.until("stdout")
        leaver = asyncio.create_task(
            runner.execute("touch never", language="bash", session=SESSION)
        )
        await asyncio.sleep(0.15)
        leaver.cancel()
        await asyncio.sleep(0.1)
    reply = await runner.execute("test ! -e never", language="bash", session=SESSION)
    assert reply.json["run"]["code"] == 0


def assert_cancelled(reply: Reply, stdout: str = "begun\n") -> None:
    assert reply.status == 200
    run = reply.json["run"]
    assert (run["outcome"]["kind"], run["outcome"]["fault"]) == ("cancelled", "user")
    assert (run["stdout"], run["code"], run["signal"]) == (stdout, 137, "SIGKILL")


async def test_delete_by_the_id_of_the_stream_ends_it_with_a_result(runner: Daemon) -> None:
    async with streamed(runner, SLEEPER, session=SESSION) as stream:
        started = await stream.until("started")
        begun = time.monotonic()
        reply = await runner.request("DELETE", f"/execute/{started.data['id']}")
        assert (reply.status, reply.body) == (202, b"") and time.monotonic() - begun < 1
        events = await stream.rest()
    assert events[-1].name == "result"
    assert events[-1].data["run"]["outcome"]["kind"] == "cancelled"
    assert sleepers() == []


async def test_delete_by_key_ends_a_plain_one_which_then_stays_ended(runner: Daemon) -> None:
    key = {"Idempotency-Key": "a_key/with_?#%"}
    task = asyncio.create_task(
        runner.execute(SLEEPER, language="bash", session=SESSION, headers=key)
    )
    await until_begun()
    path = "/execute/a_key%2Fwith_%3F%23%25"
    assert (await runner.request("DELETE", path)).status == 404  # a key of no session
    assert (await runner.request("DELETE", path, session=SESSION)).status == 202
    assert_cancelled(await task)
    assert (await runner.request("DELETE", path, session=SESSION)).status == 204
    again = await runner.execute(SLEEPER, language="bash", session=SESSION, headers=key)
    assert again.body == (await task).body and sleepers() == []


async def test_delete_does_not_wait_for_the_session_and_reaches_one_that_waits_for_it(
    runner: Daemon,
) -> None:
    async with streamed(runner, SLEEPER, session=SESSION) as first:
        await first.until("stdout")
        key = {"Idempotency-Key": "waiting"}
        waiting = asyncio.create_task(
            runner.execute("touch never", language="bash", session=SESSION, headers=key)
        )
        await asyncio.sleep(0.1)
        assert (await runner.request("DELETE", "/execute/waiting", session=SESSION)).status == 202
        assert_cancelled(await asyncio.wait_for(waiting, 1), stdout="")
        assert len(sleepers()) == 1
    assert "never" not in await runner.paths(SESSION)


async def test_delete_of_what_nobody_knows_is_404(runner: Daemon) -> None:
    reply = await runner.request("DELETE", "/execute/no-such-thing")
    assert (reply.status, reply.json["error"]) == (404, "not_found")


async def test_what_a_cancelled_program_made_comes_with_the_next_result(runner: Daemon) -> None:
    async with streamed(runner, f"echo made > made.txt; {SLEEPER}", session=SESSION) as stream:
        started = await stream.until("stdout")
        assert started.data["data"] == "begun\n"
        await runner.request("DELETE", f"/execute/{stream.response.headers['X-Execution-Id']}")
        result = (await stream.rest())[-1].data
    assert result["files"] == [] and result["skipped"][0]["reason"] == "not_walked"
    reply = await runner.execute("true", language="bash", session=SESSION)
    assert "made.txt" in [file["name"] for file in reply.json["files"]]


async def test_a_daemon_that_stops_answers_everybody(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch(RUNNER_MAX_JOBS="1", RUNNER_HEARTBEAT="50ms")
    orders: list[dict[str, Any]] = [
        {"session": SESSION},
        {"session": SESSION},  # waits for the session
        {},
        {},  # waits for a place
        {"headers": {"Idempotency-Key": "k"}, "session": SESSION},
    ]
    tasks = []
    for order in orders:
        tasks.append(asyncio.create_task(daemon.execute(SLEEPER, language="bash", **order)))
        await asyncio.sleep(0.05)
    async with streamed(daemon, SLEEPER) as stream:
        await until_begun(2)
        begun = time.monotonic()
        os.kill(daemon.pid, signal.SIGTERM)
        replies = await asyncio.gather(*tasks)
        events = await stream.rest()
        assert time.monotonic() - begun < 3
    for number, reply in enumerate(replies):
        assert_cancelled(reply, "begun\n" if number in (0, 2) else "")
    assert [event.name for event in events] == ["result"]
    assert events[0].data["run"]["outcome"]["kind"] == "cancelled"
    assert sleepers() == []
