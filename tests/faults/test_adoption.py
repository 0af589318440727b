"""A daemon that is killed and started again on the same disk goes on where it was."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon
from tests.leftovers import TEST_UID, assert_nothing_left, processes_of, settled

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def session_of(daemon: Daemon) -> dict[str, Any]:
    return (await daemon.get("/health")).json["session"]


async def test_everything_is_adopted_after_kill_9(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    before = await daemon.execute("open('out', 'w').write('x')", session=SESSION, name="in.py")
    assert [file["name"] for file in before.json["files"]] == ["out"]
    # That the client has it is noted once the last byte is out, which the client may see sooner.
    record = daemon.data_root / "state/session.json"
    assert await settled(lambda: b'"surfaced":{"out"' in record.read_bytes(), True)
    await daemon.kill()
    await daemon.start()
    assert await session_of(daemon) == {
        "state": "ready",
        "incarnation": before.incarnation,
        "dirty": None,
    }
    after = await daemon.execute("print(open('out').read())", session=SESSION, name="other.py")
    assert after.json["run"]["stdout"] == "x\n"
    assert after.incarnation == before.incarnation
    # `out` was delivered before the kill, and `in.py` is still known as an input.
    assert after.json["files"] == [] and after.json["skipped"] == []


async def test_a_killed_daemon_leaves_no_jail_behind(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    running = asyncio.create_task(
        daemon.execute("import time; open('begun', 'w'); time.sleep(60)", session=SESSION)
    )
    while not (daemon.data_root / "workspace/begun").exists():
        await asyncio.sleep(0.01)
    assert processes_of(TEST_UID)
    await daemon.kill()
    running.cancel()
    await daemon.start()
    await assert_nothing_left(daemon.data_root)
    reply = await daemon.execute("import os; print(os.path.exists('begun'))", session=SESSION)
    assert reply.json["run"]["stdout"] == "True\n"


async def test_a_vanished_workspace_is_noticed_at_the_start(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("open('x', 'w')", session=SESSION)
    await daemon.kill()
    shutil.rmtree(daemon.data_root / "workspace")
    await daemon.start()
    reply = await daemon.execute("print(1)", session=SESSION)
    assert (reply.status, reply.json["error"]) == (409, "session_workspace_dirty")
    assert (reply.json["reason"], reply.json["recycle"]) == ("workspace_missing", True)


async def test_a_forged_record_is_not_believed(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("open('x', 'w').write('of somebody')", session=SESSION)
    await daemon.kill()
    record = daemon.data_root / "state/session.json"
    mac, _, body = record.read_bytes().partition(b"\n")
    forged = json.loads(body) | {"session": "thief"}
    record.write_bytes(mac + b"\n" + json.dumps(forged).encode())
    await daemon.start()
    for session in ("thief", SESSION):
        reply = await daemon.execute("print(open('x').read())", session=session)
        assert (reply.status, reply.json["error"]) == (409, "session_workspace_dirty")
        assert (await daemon.get("/session/files/x", session=session)).status == 409
        assert (await daemon.checkpoint(session)).status == 409


async def test_a_workspace_without_a_record_is_nobodys(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("open('x', 'w').write('of somebody')", session=SESSION)
    await daemon.kill()
    (daemon.data_root / "state/session.json").unlink()
    await daemon.start()
    assert (await session_of(daemon))["state"] == "unbound"
    code = "import os; print(os.listdir('.'))"
    reply = await daemon.execute(code, session="the-next")
    assert reply.json["run"]["stdout"] == "['main']\n"


async def test_what_was_half_made_is_swept(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    await daemon.kill()
    for name in ("staging/prime-dead", "jobs/dead"):
        (daemon.data_root / name / "a/b").mkdir(parents=True)
    await daemon.start()
    assert os.listdir(daemon.data_root / "staging") == []
    assert "dead" not in os.listdir(daemon.data_root / "jobs")
