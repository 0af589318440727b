"""A jail of which something may be left: whatever its program returned, the session is dirty."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon
from tests.leftovers import jail_groups

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: A source that takes a while to compile.
SLOW_C = "int a[] = {" + "1," * 400_000 + "}; int main(void) { return 0; }"


@contextmanager
def kept(groups: list[str]) -> Iterator[None]:
    """Groups that cannot be removed, as those of a process that does not die: each has a child."""
    inner = [os.path.join(group, "held") for group in groups]
    for path in inner:
        os.mkdir(path)
    try:
        yield
    finally:
        for path in inner:
            os.rmdir(path)


async def stopped(daemon: Daemon, program: str) -> tuple[int, list[str]]:
    """A process with such a command line, stopped, and the groups of the jail in which it runs."""

    def found() -> tuple[int, str] | None:
        for group in jail_groups(daemon.data_root):
            with contextlib.suppress(OSError):
                for pid in map(int, Path(group, "cgroup.procs").read_text().split()):
                    said = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                    if re.search(program, said):
                        os.kill(pid, signal.SIGSTOP)
                        return pid, os.path.basename(group)
        return None

    async with asyncio.timeout(10):
        while (there := found()) is None:
            await asyncio.sleep(0.005)
    pid, name = there
    return pid, [each for each in jail_groups(daemon.data_root) if os.path.basename(each) == name]


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
