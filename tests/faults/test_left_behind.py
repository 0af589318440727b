"""What a jail that is over may have left: it is looked at again, and nobody says it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.conftest import SESSION
from tests.faults.held_groups import groups_of, kept
from tests.harness import Daemon
from tests.terminals import connect

pytestmark = pytest.mark.asyncio(loop_scope="module")

Launch = Callable[..., Awaitable[Daemon]]


async def logged(daemon: Daemon, event: str) -> None:
    async with asyncio.timeout(10):
        while all(line.get("event") != event for line in daemon.log):
            await asyncio.sleep(0.05)


async def state_of(daemon: Daemon) -> tuple[str, str | None]:
    session = (await daemon.get("/health")).json["session"]
    return session["state"], session["dirty"]


async def test_a_terminal_that_was_not_proven_empty_keeps_nobody_out_once_it_is(
    launch: Launch,
) -> None:
    daemon = await launch()
    await daemon.execute("echo 1 > file", language="bash", session=SESSION)
    archive = (await daemon.checkpoint(SESSION)).body
    shell = await connect(daemon, SESSION)
    with kept(await groups_of(daemon, "bash")):
        await shell.hang_up()
        await logged(daemon, "a terminal could not be proven empty")
        # While something may be left of it nothing takes its place.
        refused = await daemon.restore(SESSION, archive)
        assert (refused.status, refused.json["error"]) == (500, "internal")
        assert (refused.json["retryable"], refused.json["recycle"]) == (True, True)
        assert await state_of(daemon) == ("dirty", "jail_not_empty")
    assert (await daemon.restore(SESSION, archive)).status == 200
    reply = await daemon.execute("cat file", language="bash", session=SESSION)
    assert reply.json["run"]["stdout"] == "1\n"


async def test_what_is_gone_by_now_shares_the_workspace_no_more(launch: Launch) -> None:
    daemon = await launch()
    await daemon.execute("echo 1 > file", language="bash", session=SESSION)
    shell = await connect(daemon, SESSION)

    async def is_known() -> bool:
        tag = (await daemon.checkpoint(SESSION)).headers["ETag"]
        again = await daemon.checkpoint(SESSION, headers={"If-None-Match": tag})
        return again.status == 304

    with kept(await groups_of(daemon, "bash")):
        await shell.hang_up()
        await logged(daemon, "a terminal could not be proven empty")
        assert not await is_known()
    assert await is_known()


async def test_a_terminate_says_that_something_may_be_left(launch: Launch) -> None:
    daemon = await launch()
    await daemon.request("POST", "/session/boot", session=SESSION)
    running = asyncio.create_task(daemon.execute("sleep 1", language="bash", session=SESSION))
    terminate = "/aws/lambda-microvms/runtime/v1/terminate"
    with kept(await groups_of(daemon, "sleep")):
        assert (await running).json["run"]["outcome"]["evidence"]["proven_empty"] is False
        refused = await daemon.request("POST", terminate)
        assert (refused.status, refused.json["error"]) == (500, "internal")
        assert (refused.json["retryable"], refused.json["recycle"]) == (True, True)
        assert await state_of(daemon) == ("dirty", "terminated")
    reply = await daemon.request("POST", terminate)
    assert (reply.status, reply.json["steps"][0]["detail"]) == (200, "none is left")
    assert (await daemon.execute("true", language="bash", session="the-next")).status == 200
