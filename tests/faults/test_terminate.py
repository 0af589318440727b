"""A VM that is to be terminated: no state is too busy for it, and half a wipe is not hidden."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.boothooks import hooks
from tests.conftest import SESSION
from tests.faults.terminating import NOISE, assert_ended, state, terminate, until_state
from tests.harness import Daemon
from tests.mounts import tmpfs

pytestmark = pytest.mark.asyncio(loop_scope="module")

Launch = Callable[..., Any]
STUCK = "import time; open('begun', 'w'); time.sleep(60)"


async def test_a_restore_whose_body_does_not_end_is_ended(launch: Launch) -> None:
    daemon: Daemon = await launch()
    await daemon.execute(NOISE, session=SESSION)
    archive = (await daemon.checkpoint(SESSION)).body
    ended = asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield archive[: len(archive) // 2]
        await ended.wait()

    restoring = asyncio.create_task(daemon.restore(SESSION, half()))
    await until_state(daemon, "restoring")
    await assert_ended(daemon)
    ended.set()
    with pytest.raises(aiohttp.ClientError):
        await restoring


async def test_a_checkpoint_that_nobody_reads_is_ended(launch: Launch) -> None:
    daemon: Daemon = await launch()
    await daemon.execute(NOISE, session=SESSION)
    headers = {"X-Runtime-Session-Id": SESSION}
    async with daemon.client.get("/session/checkpoint", headers=headers) as response:
        assert response.status == 200
        await until_state(daemon, "checkpointing")
        await assert_ended(daemon)
        with pytest.raises(aiohttp.ClientError):
            await response.read()


async def test_a_boot_under_way_is_ended(launch: Launch, tmp_path: Path) -> None:
    stuck = hooks(tmp_path / "boot.d", {"10-stuck": "touch begun; test -e $0.go || sleep 60"})
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=stuck)
    booting = asyncio.create_task(daemon.request("POST", "/session/boot", session=SESSION))
    async with asyncio.timeout(10):
        while not (daemon.data_root / "workspace/begun").exists():
            await asyncio.sleep(0.01)
    reply = await terminate(daemon)
    assert (reply.status, await state(daemon)) == (200, "terminated")
    # Of its hook's end it hears first, or of the terminate's.
    assert (await booting).json["error"] in ("boot_failed", "session_busy")
    (tmp_path / "boot.d/10-stuck.go").touch()
    look = await daemon.execute("import os; print(sorted(os.listdir('.')))", session="the-next")
    assert look.json["run"]["stdout"] == "['begun', 'main']\n"


async def test_who_waits_for_the_session_does_not_get_it_any_more(launch: Launch) -> None:
    daemon: Daemon = await launch(RUNNER_LOCK_WAIT="30s")
    running = asyncio.create_task(daemon.execute(STUCK, session=SESSION))
    while not (daemon.data_root / "workspace/begun").exists():
        await asyncio.sleep(0.01)
    waiting = [
        asyncio.create_task(daemon.execute(STUCK, session=SESSION, name=f"{number}"))
        for number in range(3)
    ]
    await asyncio.sleep(0.2)
    await assert_ended(daemon)
    assert (await running).json["run"]["outcome"]["kind"] == "cancelled"
    for reply in await asyncio.gather(*waiting):
        assert (reply.status, reply.json["error"]) == (409, "session_busy")


async def test_a_workspace_that_cannot_be_wiped_is_dirty_until_it_can_be(launch: Launch) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("import os; os.mkdir('held'); open('kept', 'w')", session=SESSION)
    # What is mounted on cannot be removed.
    with tmpfs(daemon.data_root / "workspace/held"):
        refused = await terminate(daemon)
        assert (refused.status, refused.json["error"]) == (500, "internal")
        assert (refused.json["retryable"], refused.json["recycle"]) == (True, True)
        for _ in range(2):
            session = (await daemon.get("/health")).json["session"]
            assert (session["state"], session["dirty"]) == ("dirty", "terminated")
            reply = await daemon.execute("pass", session=SESSION)
            assert (reply.status, reply.json["reason"]) == (409, "terminated")
            await daemon.kill()
            await daemon.start()
    await assert_ended(daemon)


async def test_no_result_of_before_is_told_to_whoever_comes_next(launch: Launch) -> None:
    daemon: Daemon = await launch()
    keyed = {"headers": {"Idempotency-Key": "the-same"}}
    # A random word, so that two runs are told apart.
    code = "import secrets; print(secrets.token_hex(8))"
    for session in (None, SESSION):
        before = await daemon.execute(code, session=session, **keyed)
        again = await daemon.execute(code, session=session, **keyed)
        assert again.json["run"]["stdout"] == before.json["run"]["stdout"]
        assert (await terminate(daemon)).status == 200
        after = await daemon.execute(code, session=session, **keyed)
        assert after.json["run"]["stdout"] != before.json["run"]["stdout"]
        assert "Idempotent-Replayed" not in after.headers


async def test_a_full_disk_keeps_no_vm_from_its_end(launch: Launch, fast_dir: Path) -> None:
    root = fast_dir / "small"
    with tmpfs(root, size=24 << 20):
        daemon: Daemon = await launch("small")
        fills = "f = open('fill', 'wb', buffering=0)\nwhile True: f.write(bytes(4096))"
        full = await daemon.execute(fills, session=SESSION)
        assert full.json["run"]["outcome"]["kind"] == "storage_full"
        assert await state(daemon) == "ready"
        await assert_ended(daemon)
        await daemon.stop()
    # For the fixture, which looks for what was left in them.
    (root / "jobs").mkdir()
    (root / "staging").mkdir()
