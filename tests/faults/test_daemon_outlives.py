"""The daemon outlives its guest: short of descriptors, of memory, and of no group of a jail."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from image.checks import CAP_SYS_RESOURCE
from jail.cgroup import group_name
from tests.conftest import SESSION
from tests.harness import Daemon
from tests.leftovers import TEST_UID, assert_nothing_left

pytestmark = pytest.mark.asyncio(loop_scope="module")


def may_lower() -> bool:
    """Whether this machine's root may take itself out of the OOM killer's way."""
    status = Path("/proc/self/status").read_text().partition("CapEff:")[2]
    return bool(int(status.split()[0], 16) >> CAP_SYS_RESOURCE & 1)


async def test_guests_go_before_the_daemon_and_health_says_how_sure_that_is(
    runner: Daemon,
) -> None:
    own = int(Path(f"/proc/{runner.pid}/oom_score_adj").read_text())
    code = "cat /proc/1/oom_score_adj /proc/self/oom_score_adj"
    guest = (await runner.execute(code, language="bash", session=SESSION)).json["run"]["stdout"]
    assert guest.split() == ["500", "1000"]
    said = (await runner.get("/health")).json["limits"]["daemon"]
    assert (own, said) == ((-900, "enforced") if may_lower() else (own, "advisory"))
    assert own < 500


async def test_the_daemon_is_in_no_group_of_a_jail(runner: Daemon) -> None:
    """A jail's limit, its kill and its freeze are its group's, and the daemon is in none."""
    async with asyncio.TaskGroup() as group:
        ran = group.create_task(runner.execute("sleep 1", language="bash"))
        await asyncio.sleep(0.5)
        own = Path(f"/proc/{runner.pid}/cgroup").read_text()
        found = [
            Path(entry.path, "cgroup").read_text()
            for entry in os.scandir("/proc")
            if entry.name.isdigit() and _uid(entry.path) == TEST_UID
        ]
    assert ran.result().json["run"]["code"] == 0
    assert found and "sandbox-runner." not in own.replace("sandbox-runner.daemon", "")
    ours = f"/{group_name(str(runner.data_root))}/"
    assert all(ours in text for text in found)


def _uid(process: str) -> int:
    try:
        return Path(process).stat().st_uid
    except OSError:
        return -1


async def test_the_daemon_takes_the_descriptors_that_it_may_have(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch()
    limits = Path(f"/proc/{daemon.pid}/limits").read_text().partition("Max open files")[2]
    soft, hard = limits.split()[:2]
    assert soft == hard
    inside = (await daemon.execute("ulimit -n; ulimit -Hn", language="bash")).json["run"]
    assert inside["stdout"] == "1024\n1024\n"


async def test_too_few_descriptors_refuse_an_execution_and_break_none(fast_dir: Path) -> None:
    environ = {"RUNNER_SESSION_UID": str(TEST_UID), "RUNNER_MAX_JOBS": "32"}
    few = ("prlimit", "--nofile=160:160")
    async with Daemon(fast_dir / "data", environ, wrapper=few) as daemon:
        await daemon.execute("echo kept > kept", language="bash", session=SESSION)
        files = [{"name": f"f{n}", "content": "x"} for n in range(20)]

        async def one(number: int) -> tuple[int, Any]:
            session = SESSION if number == 0 else None
            reply = await daemon.execute(
                "sleep 0.5; cat f1", language="bash", session=session, files=files
            )
            return reply.status, reply.json

        answers = await asyncio.gather(*(one(number) for number in range(32)))
        refused = [body for status, body in answers if status != 200]
        assert 0 < len(refused) < 32
        for body in refused:
            assert (body["error"], body["retryable"]) == ("overloaded", True), body
            assert body["reason"] == "descriptors"
        for status, body in answers:
            assert status in (200, 429)
            if status == 200:
                assert body["run"]["stdout"] == "x", body
        health = (await daemon.get("/health")).json
        assert health["session"]["dirty"] is None
        reply = await daemon.execute("cat kept", language="bash", session=SESSION)
        assert reply.json["run"]["stdout"] == "kept\n"
        await assert_nothing_left(daemon.data_root)


async def test_a_memory_bomb_beside_a_memory_bomb_leaves_the_daemon_alone(runner: Daemon) -> None:
    code = "held = []\nwhile True: held.append(bytearray(b'x') * (8 << 20))"
    pid = runner.pid
    bombs = [runner.execute(code, run_memory_limit=128 << 20) for _ in range(6)]
    kinds = {reply.json["run"]["outcome"]["kind"] for reply in await asyncio.gather(*bombs)}
    assert kinds == {"out_of_memory"}
    assert runner.pid == pid and (await runner.get("/health")).status == 200
