"""A fresh incarnation is provisioned by the image's boot hooks: once, in order, in the jail."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.boothooks import COUNTS, hooks
from tests.conftest import SESSION
from tests.harness import Daemon, Reply
from tests.leftovers import TEST_UID, assert_nothing_left, processes_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

Launch = Callable[..., Any]
KEY = {"X-Sidecar-Key": base64.urlsafe_b64encode(bytes(32)).decode()}


async def boot(daemon: Daemon, **more: Any) -> Reply:
    return await daemon.request("POST", "/session/boot", session=SESSION, **more)


async def last(daemon: Daemon) -> Any:
    return (await daemon.get("/session/boot", session=SESSION)).json["last"]


async def state(daemon: Daemon) -> str:
    return str((await daemon.get("/health")).json["session"]["state"])


async def lines(daemon: Daemon, path: str) -> list[str]:
    reply = await daemon.file(SESSION, path)
    return reply.body.decode().splitlines() if reply.status == 200 else []


async def test_hooks_run_in_order_once_per_incarnation(launch: Launch, tmp_path: Path) -> None:
    by_name = {name: f"echo {name} >> order" for name in ("20-b", "10-a", "9-c")}
    directory = hooks(tmp_path, by_name)
    hooks(tmp_path, {"05-not-executable": "echo wrong >> order", "README": "x"}, mode=0o644)
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=directory)
    first = await boot(daemon)
    assert (first.status, first.json["state"]) == (200, "ready")
    assert first.json["incarnation"] == first.incarnation
    again = await boot(daemon)
    assert (again.status, again.json) == (200, first.json)
    await daemon.execute("pass", session=SESSION)
    assert await lines(daemon, "order") == ["10-a", "20-b", "9-c"]


async def test_what_hooks_print_is_kept_for_the_incarnation(launch: Launch, tmp_path: Path) -> None:
    directory = hooks(tmp_path, {"10-talks": "echo out; echo err >&2"})
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=directory)
    await daemon.execute("pass", session=SESSION)
    kept = await last(daemon)
    assert kept["ok"] is True
    (hook,) = kept["hooks"]
    assert (hook["name"], hook["run"]["stdout"], hook["run"]["stderr"]) == (
        "10-talks",
        "out\n",
        "err\n",
    )
    await daemon.kill()
    await daemon.start()
    assert await last(daemon) == kept
    await daemon.request("POST", "/aws/lambda-microvms/runtime/v1/terminate")
    await daemon.request(
        "POST",
        "/aws/lambda-microvms/runtime/v1/run",
        json={"runHookPayload": '{"runtime_session_id": "the-next"}'},
    )
    stranger = await daemon.get("/session/boot", session="the-next")
    assert stranger.json == {"state": "fresh", "incarnation": stranger.incarnation, "last": None}
    assert not (daemon.data_root / "state/boot.json").exists()


async def test_a_failing_hook_is_named_and_tried_again_at_the_next_use(
    launch: Launch, tmp_path: Path
) -> None:
    once = "test -e second && exit 0; touch second; echo why >&2; exit 3"
    directory = hooks(tmp_path, {"10-first": COUNTS, "20-once": once, "30-last": "touch third"})
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=directory)
    failed = await boot(daemon)
    error = failed.json
    assert (failed.status, error["error"], error["hook"]) == (500, "boot_failed", "20-once")
    assert (error["retryable"], error["recycle"]) == (True, False)
    assert error["outcome"]["kind"] == error["reason"] == "exited"
    assert await state(daemon) == "fresh"
    report = await last(daemon)
    assert [hook["name"] for hook in report["hooks"]] == ["10-first", "20-once"]
    assert (report["ok"], report["hooks"][-1]["run"]["stderr"]) == (False, "why\n")
    reply = await daemon.execute("print(1)", session=SESSION)
    assert (reply.status, await state(daemon)) == (200, "ready")
    # What a boot left that failed is set-up as well.
    assert reply.json["files"] == []
    assert (await last(daemon))["ok"] is True
    assert await lines(daemon, "ran") == ["ran", "ran"]
    assert "third" in await daemon.paths(SESSION)


async def test_an_execute_on_a_session_that_cannot_boot_runs_nothing(
    launch: Launch, tmp_path: Path
) -> None:
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=hooks(tmp_path, {"10-never": "exit 1"}))
    for reply in (
        await daemon.execute("open('ran', 'w')", session=SESSION),
        await daemon.checkpoint(SESSION),
    ):
        assert (reply.status, reply.json["error"]) == (500, "boot_failed")
    assert await state(daemon) == "fresh"
    assert await daemon.paths(SESSION) == []


async def test_all_hooks_together_have_one_time_limit(launch: Launch, tmp_path: Path) -> None:
    directory = hooks(tmp_path, {"10-slow": "sleep 1", "20-stuck": "sleep 60"})
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=directory, RUNNER_BOOT_TIMEOUT="2s")
    failed = await boot(daemon)
    assert (failed.json["hook"], failed.json["reason"]) == ("20-stuck", "timed_out")
    slow, stuck = (hook["run"]["wall_time"] for hook in (await last(daemon))["hooks"])
    assert slow >= 1000
    assert stuck < 1500
    await assert_nothing_left(daemon.data_root)


async def test_fifty_boots_at_once_run_the_hooks_once(launch: Launch, tmp_path: Path) -> None:
    directory = hooks(tmp_path, {"10-counts": f"{COUNTS}; sleep 0.3"})
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=directory)
    replies = await asyncio.gather(*(boot(daemon) for _ in range(50)))
    assert {(reply.status, reply.json["state"]) for reply in replies} == {(200, "ready")}
    assert len({reply.incarnation for reply in replies}) == 1
    assert await lines(daemon, "ran") == ["ran"]


async def test_boots_and_first_uses_at_once_run_the_hooks_once(
    launch: Launch, tmp_path: Path
) -> None:
    directory = hooks(tmp_path, {"10-counts": f"{COUNTS}; sleep 0.3"})
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=directory, RUNNER_LOCK_WAIT="30s")
    seen = await asyncio.gather(
        *(boot(daemon) for _ in range(40)),
        *(
            daemon.execute("print(open('ran').read(), end='')", session=SESSION, name=f"{number}")
            for number in range(10)
        ),
    )
    assert {reply.status for reply in seen} == {200}
    assert {reply.json["run"]["stdout"] for reply in seen[40:]} == {"ran\n"}
    assert await lines(daemon, "ran") == ["ran"]


async def test_a_client_that_leaves_does_not_stop_the_boot(launch: Launch, tmp_path: Path) -> None:
    directory = hooks(tmp_path, {"10-slow": f"sleep 0.5; {COUNTS}"})
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=directory)
    with pytest.raises(TimeoutError):
        await boot(daemon, timeout=aiohttp.ClientTimeout(total=0.2))
    async with asyncio.timeout(10):
        while await state(daemon) != "ready":
            await asyncio.sleep(0.02)
    assert await lines(daemon, "ran") == ["ran"]


async def test_a_boot_of_a_ready_session_waits_for_nobody(launch: Launch, tmp_path: Path) -> None:
    daemon: Daemon = await launch(RUNNER_LOCK_WAIT="100ms")
    await boot(daemon)
    running = asyncio.create_task(
        daemon.execute("import time; open('begun', 'w'); time.sleep(1)", session=SESSION)
    )
    while not (daemon.data_root / "workspace/begun").exists():
        await asyncio.sleep(0.01)
    reply = await boot(daemon)
    assert (reply.status, reply.json["state"]) == (200, "executing")
    assert (await running).status == 200


async def test_hooks_run_as_the_session_user_in_the_jail(launch: Launch, tmp_path: Path) -> None:
    look = "id -u; id -g; pwd; grep CapEff /proc/self/status; echo $$; ls /dev/shm /mnt"
    outside = f"cat {tmp_path}/10-look; ls {tmp_path} /var/lib/sandbox-runner; touch /mnt/boot.d/x"
    directory = hooks(tmp_path, {"10-look": look, "20-outside": f"({outside}) 2>&1; true"})
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=directory)
    await boot(daemon)
    inside, out = ((hook["run"]["stdout"]) for hook in (await last(daemon))["hooks"])
    uid, gid, cwd, capabilities, *rest = inside.splitlines()
    assert (uid, gid, cwd) == (str(TEST_UID), "200000", "/mnt/data")
    assert int(capabilities.split()[1], 16) == 0
    assert rest[1:] == ["/dev/shm:", "", "/mnt:", "boot.d", "data"]
    assert "#!/bin/sh" not in out
    assert not (tmp_path / "x").exists()


async def test_files_that_hooks_leave_are_no_outputs_until_they_are_changed(
    launch: Launch, tmp_path: Path
) -> None:
    makes = "mkdir -p lib empty; echo one > lib/tool; echo two > lib/other"
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=hooks(tmp_path, {"10-makes": makes}))
    quiet = await daemon.execute("print(open('lib/tool').read())", session=SESSION)
    assert quiet.json["run"]["stdout"] == "one\n\n"
    assert (quiet.json["files"], quiet.json["skipped"]) == ([], [])
    changed = await daemon.execute("open('lib/tool', 'a').write('x')", session=SESSION)
    assert [file["name"] for file in changed.json["files"]] == ["lib/tool"]


async def test_what_a_boot_left_that_was_killed_is_no_output_either(
    launch: Launch, tmp_path: Path
) -> None:
    stuck = "test -e begun || { touch begun; sleep 60; }"
    makes = {"10-makes": "echo one > tool", "20-stuck": stuck}
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=hooks(tmp_path / "boot.d", makes))
    booting = asyncio.create_task(boot(daemon))
    while not (daemon.data_root / "workspace/begun").exists():
        await asyncio.sleep(0.01)
    await daemon.kill()
    await asyncio.wait({booting})
    booting.exception()
    await daemon.start()
    assert await state(daemon) == "fresh"
    reply = await daemon.execute("pass", session=SESSION)
    assert (reply.status, reply.json["files"]) == (200, [])


async def test_a_restore_keeps_the_files_boots_again_and_owes_what_it_owed(
    launch: Launch, tmp_path: Path
) -> None:
    directory = hooks(tmp_path, {"10-counts": f"{COUNTS}; echo x > tool"})
    old: Daemon = await launch("old", RUNNER_BOOT_HOOKS=directory)
    # One more than is returned at once.
    code = "[open(f'out-{n:02}', 'w').write(str(n)) for n in range(51)]"
    made = await old.execute(code, session=SESSION)
    assert [each["reason"] for each in made.json["skipped"]] == ["too_many"]
    saved = await old.checkpoint(SESSION, headers=KEY)
    new: Daemon = await launch("new", RUNNER_BOOT_HOOKS=directory)
    assert (await new.restore(SESSION, saved.body, headers=KEY)).status == 200
    assert await state(new) == "ready"
    assert await lines(new, "ran") == ["ran", "ran"]
    assert (await new.file(SESSION, "out-07")).body == b"7"
    later = await new.execute("pass", session=SESSION)
    assert [file["name"] for file in later.json["files"]] == ["out-50"]


async def test_a_restore_stands_though_the_boot_behind_it_failed(
    launch: Launch, tmp_path: Path
) -> None:
    good: Daemon = await launch("good")
    await good.execute("open('kept', 'w').write('x')", session=SESSION)
    saved = await good.checkpoint(SESSION, headers=KEY)
    fails = hooks(tmp_path, {"10-fails": "test -e go"})
    daemon: Daemon = await launch("bad", RUNNER_BOOT_HOOKS=fails)
    assert (await daemon.restore(SESSION, saved.body, headers=KEY)).status == 200
    assert await state(daemon) == "fresh"
    assert (await last(daemon))["ok"] is False
    assert (await daemon.file(SESSION, "kept")).body == b"x"
    assert (await daemon.execute("pass", session=SESSION)).json["error"] == "boot_failed"
    hooks(tmp_path, {"10-fails": "true"})
    reply = await daemon.execute("print(open('kept').read())", session=SESSION)
    assert reply.json["run"]["stdout"] == "x\n"


async def test_a_daemon_that_is_stopped_ends_the_hook_that_runs(
    launch: Launch, tmp_path: Path
) -> None:
    directory = hooks(tmp_path, {"10-stuck": "touch begun; sleep 60"})
    daemon: Daemon = await launch(RUNNER_BOOT_HOOKS=directory, RUNNER_BOOT_TIMEOUT="50s")
    with pytest.raises(TimeoutError):
        await boot(daemon, timeout=aiohttp.ClientTimeout(total=0.5))
    assert processes_of(TEST_UID)
    assert await daemon.stop() == -15
    assert not processes_of(TEST_UID)
    assert not [event for event in daemon.log if "could not stop" in event.get("event", "")]
