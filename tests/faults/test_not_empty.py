"""A jail of which something may be left: whatever its program returned, the session is dirty."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import pytest

from tests.conftest import SESSION
from tests.faults.held_groups import kept, stopped
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: A source that takes a while to compile.
SLOW_C = "int a[] = {" + "1," * 400_000 + "}; int main(void) { return 0; }"


@pytest.mark.parametrize(
    ("language", "code", "program", "status", "error"),
    # The daemon's own probe compiles, too, but nothing of that name.
    [
        ("bash", "sleep 1.25", r"^sleep 1\.25", 200, None),
        ("c", SLOW_C, r"cc1 .*held\.c", 500, "internal"),
    ],
    ids=["the command", "the compiler"],
)
async def test_a_jail_that_is_not_proven_empty_leaves_a_dirty_session(
    launch: Callable[..., Awaitable[Daemon]],
    language: str,
    code: str,
    program: str,
    status: int,
    error: str | None,
) -> None:
    daemon = await launch()
    await daemon.execute("echo 1 > file", language="bash", session=SESSION)
    archive = (await daemon.checkpoint(SESSION)).body
    running = asyncio.create_task(
        daemon.execute(code, language=language, name=f"held.{language}", session=SESSION)
    )
    pid, groups = await stopped(daemon, program)
    with kept(groups):
        os.kill(pid, signal.SIGCONT)
        reply = await running
        assert (reply.status, reply.json.get("error")) == (status, error), reply.json
        if status == 200:
            # What is known of the command itself is told.
            run = reply.json["run"]
            assert run["outcome"]["kind"] == "exited"
            assert run["outcome"]["evidence"]["proven_empty"] is False
        else:
            assert reply.json["recycle"] is True and reply.json["retryable"] is False
        session = (await daemon.get("/health")).json["session"]
        assert (session["state"], session["dirty"]) == ("dirty", "jail_not_empty")
        for _ in range(2):
            refused = await daemon.execute("true", language="bash", session=SESSION)
            assert (refused.status, refused.json["reason"]) == (409, "jail_not_empty")
    assert (await daemon.restore(SESSION, archive)).status == 200
    reply = await daemon.execute("cat file", language="bash", session=SESSION)
    assert reply.json["run"]["stdout"] == "1\n"
