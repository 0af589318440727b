"""One life of the workspace on one disk has one name, and the name is never believed unproven."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.recovery import Course, course
from tests.boothooks import COUNTS, hooks
from tests.conftest import SESSION
from tests.harness import Daemon, Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

Launch = Callable[..., Any]
HOOKS = "/aws/lambda-microvms/runtime/v1"
WRONG = {"X-Expected-Incarnation": "inc_of_another_disk"}


async def session_of(daemon: Daemon) -> dict[str, Any]:
    return dict((await daemon.get("/health")).json["session"])


async def every_way_in(daemon: Daemon, headers: dict[str, str]) -> list[Reply]:
    """One request by each route that names a session and can change or show something of it."""
    return [
        await daemon.execute("open('made', 'w')", session=SESSION, headers=headers, name="new"),
        await daemon.checkpoint(SESSION, headers=headers),
        await daemon.restore(SESSION, b"not an archive", headers=headers),
        await daemon.request("POST", "/session/boot", session=SESSION, headers=headers),
        await daemon.get("/session/boot", session=SESSION, headers=headers),
        await daemon.get("/session/files", session=SESSION, headers=headers),
        await daemon.file(SESSION, "kept", headers=headers),
        await daemon.request(
            "PUT", "/session/files/made", session=SESSION, headers=headers, data=b"x"
        ),
        await daemon.request("DELETE", "/session/files/kept", session=SESSION, headers=headers),
    ]


async def test_clones_of_one_snapshot_are_different_incarnations(
    launch: Launch, fast_dir: Path
) -> None:
    snapshot: Daemon = await launch("snapshot")
    assert (await snapshot.request("POST", f"{HOOKS}/ready")).status == 200
    assert await session_of(snapshot) == {"state": "unbound", "incarnation": None, "dirty": None}
    await snapshot.stop()
    names = []
    for clone in ("first", "second"):
        shutil.copytree(snapshot.data_root, fast_dir / clone, symlinks=True)
        daemon: Daemon = await launch(clone)
        names.append((await daemon.execute("pass", session=SESSION)).incarnation)
    assert None not in names
    assert names[0] != names[1]


async def test_another_incarnation_than_expected_changes_nothing_by_any_way(
    launch: Launch,
) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("open('kept', 'w').write('x')", session=SESSION)
    before = (await session_of(daemon), await daemon.paths(SESSION))
    for reply in await every_way_in(daemon, WRONG):
        assert (reply.status, reply.json["error"]) == (412, "incarnation_mismatch")
        assert reply.json["recycle"] is False
    assert (await session_of(daemon), await daemon.paths(SESSION)) == before


async def test_an_expectation_of_a_terminated_incarnation_binds_nothing(launch: Launch) -> None:
    daemon: Daemon = await launch()
    first = await daemon.execute("open('kept', 'w').write('x')", session=SESSION)
    assert (await daemon.request("POST", f"{HOOKS}/terminate")).status == 200
    old = {"X-Expected-Incarnation": str(first.incarnation)}
    for reply in await every_way_in(daemon, old):
        assert reply.status in (409, 412)
        assert reply.incarnation is None
    assert (await session_of(daemon))["state"] == "terminated"


async def test_a_guarded_execute_on_a_fresh_incarnation_boots_it_first(
    launch: Launch, tmp_path: Path
) -> None:
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=hooks(tmp_path / "boot.d", {"10": COUNTS}))
    body = {"runHookPayload": json.dumps({"runtime_session_id": SESSION})}
    bound = await daemon.request("POST", f"{HOOKS}/run", json=body)
    assert (await session_of(daemon))["state"] == "fresh"
    guard = {"X-Expected-Incarnation": str(bound.incarnation)}
    code = "print(open('ran').read(), end='')"
    reply = await daemon.execute(code, session=SESSION, headers=guard)
    assert (reply.status, reply.json["run"]["stdout"]) == (200, "ran\n")
    assert reply.incarnation == bound.incarnation


async def test_a_killed_daemon_adopts_the_incarnation_and_a_new_disk_is_a_new_one(
    launch: Launch,
) -> None:
    daemon: Daemon = await launch()
    first = await daemon.execute("open('kept', 'w').write('x')", session=SESSION)
    await daemon.kill()
    await daemon.start()
    guard = {"X-Expected-Incarnation": str(first.incarnation)}
    same = await daemon.execute("print(open('kept').read())", session=SESSION, headers=guard)
    assert (same.status, same.json["run"]["stdout"]) == (200, "x\n")
    await daemon.kill()
    shutil.rmtree(daemon.data_root)
    await daemon.start()
    refused = await daemon.execute("pass", session=SESSION, headers=guard)
    assert (refused.status, refused.json["error"]) == (412, "incarnation_mismatch")
    assert (await session_of(daemon))["state"] == "unbound"
    new = await daemon.execute("pass", session=SESSION)
    assert new.incarnation not in (None, first.incarnation)


async def test_the_published_counterexample_ends_provisioned(
    launch: Launch, tmp_path: Path
) -> None:
    """StartBoot, FinishBoot, Sleep (the disk is wiped), and a use that nobody booted for."""
    directory = hooks(tmp_path / "boot.d", {"10": COUNTS})
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=directory)
    booted = await daemon.request("POST", "/session/boot", session=SESSION)
    assert (booted.status, booted.json["state"]) == (200, "ready")
    await daemon.kill()
    shutil.rmtree(daemon.data_root)
    await daemon.start()
    guard = {"X-Expected-Incarnation": str(booted.incarnation)}
    woken = await daemon.execute("pass", session=SESSION, headers=guard)
    assert (woken.status, woken.json["error"]) == (412, "incarnation_mismatch")
    reply = await daemon.execute("print(open('ran').read(), end='')", session=SESSION)
    assert (reply.status, reply.json["run"]["stdout"]) == (200, "ran\n")
    assert reply.incarnation != booted.incarnation


@pytest.mark.parametrize("where", ["seal", "body", "end"])
async def test_a_record_with_one_other_bit_is_not_trusted(launch: Launch, where: str) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("open('kept', 'w').write('x')", session=SESSION)
    await daemon.kill()
    path = daemon.data_root / "state/session.json"
    record = bytearray(path.read_bytes())
    at = {"seal": 0, "body": record.index(b'"provisioned"') + 20, "end": len(record) - 1}[where]
    record[at] ^= 1
    path.write_bytes(record)
    await daemon.start()
    await _nobody_gets_anything(daemon)


async def test_the_record_of_another_disk_is_not_trusted(launch: Launch) -> None:
    theirs: Daemon = await launch("theirs")
    await theirs.execute("pass", session=SESSION)
    await theirs.stop()
    daemon: Daemon = await launch("ours")
    await daemon.execute("open('kept', 'w').write('x')", session="somebody")
    await daemon.kill()
    shutil.copy(theirs.data_root / "state/session.json", daemon.data_root / "state/session.json")
    await daemon.start()
    await _nobody_gets_anything(daemon)


async def _nobody_gets_anything(daemon: Daemon) -> None:
    assert await session_of(daemon) == {
        "state": "dirty",
        "incarnation": None,
        "dirty": "state_unreadable",
    }
    for reply in await every_way_in(daemon, {}):
        error = reply.json
        assert (reply.status, error["error"]) == (409, "session_workspace_dirty")
        assert (error["reason"], error["recycle"]) == ("state_unreadable", True)
    terminated = await daemon.request("POST", f"{HOOKS}/terminate")
    assert terminated.status == 200
    listed = await daemon.execute("import os; print(os.listdir())", session=SESSION)
    assert listed.json["run"]["stdout"] == "['main']\n"


async def test_a_lost_workspace_is_told_as_one_whatever_its_names_say(launch: Launch) -> None:
    """A repository called `request-timeout` must not turn it into a time-out."""
    daemon: Daemon = await launch()
    named = "request-timeout"
    made = await daemon.execute("pass", session=named, name=f"{named}/timed_out.py")
    assert made.json["run"]["outcome"]["kind"] == "exited"
    shutil.rmtree(daemon.data_root / "workspace")
    code = "raise TimeoutError('request-timeout')"
    reply = await daemon.execute(code, session=named, name=f"{named}/timed_out.py")
    assert reply.json["outcome"]["kind"] == "workspace_missing"
    assert course(reply.json) is Course.RESTORE
