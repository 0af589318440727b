"""What a platform's hooks do to a real daemon."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from runner.vm.suspension import INTERVAL
from tests.harness import Daemon, Reply
from tests.pushing import Item, batch

HOOKS = "/aws/lambda-microvms/runtime/v1"
SESSION = "rt_0123456789abcdef"


async def hook(daemon: Daemon, name: str, body: Any = None) -> Reply:
    return await daemon.request("POST", f"{HOOKS}/{name}", json=body)


def run_body(session: str, vm: str = "mvm-1") -> dict[str, str]:
    return {"microvmId": vm, "runHookPayload": json.dumps({"runtime_session_id": session})}


@pytest.mark.parametrize("name", ["ready", "validate"])
async def test_a_vm_is_ready_when_a_real_jail_ran(daemon: Daemon, name: str) -> None:
    reply = await hook(daemon, name)
    assert (reply.status, reply.json) == (200, {"hook": name, "status": "ok"})


@pytest.mark.parametrize("name", ["ready", "validate"])
async def test_a_vm_without_an_nsjail_that_works_is_not_ready(
    start: Callable[..., Any], fast_dir: Any, name: str
) -> None:
    daemon = Daemon(fast_dir / "broken", {"RUNNER_NSJAIL": "/bin/false"})
    await daemon.start(ready=False)
    try:
        reply = await hook(daemon, name)
        assert (reply.status, reply.json["error"]) == (503, "not_ready")
        assert "jail" in reply.json["failed"]
    finally:
        await daemon.stop()


async def test_the_first_valid_run_wins_and_a_malformed_one_takes_no_slot(daemon: Daemon) -> None:
    malformed = await hook(daemon, "run", {"runHookPayload": "{}"})
    assert malformed.status == 200
    assert malformed.incarnation is None
    first = await hook(daemon, "run", run_body(SESSION))
    assert first.status == 200 and first.json["status"] == "ok"
    again = await hook(daemon, "run", run_body(SESSION))
    other = await hook(daemon, "run", run_body("somebody-else", "mvm-2"))
    assert again.status == other.status == 200
    assert first.incarnation == again.incarnation == other.incarnation is not None
    assert (await daemon.execute("print(1)", session=SESSION)).status == 200
    assert (await daemon.execute("print(1)", session="somebody-else")).status == 409


async def test_a_first_run_makes_a_clone_its_own_before_the_session_is_bound(
    daemon: Daemon,
) -> None:
    """And only the first: a session that runs keeps what was made ahead for it."""
    first = await hook(daemon, "run", run_body(SESSION))
    steps = {step["name"]: step for step in first.json["steps"]}
    assert steps["entropy"]["done"] and "vm id" in steps["entropy"]["detail"]
    assert "warmed" in steps and "clock" in steps
    assert "steps" not in (await hook(daemon, "run", run_body(SESSION))).json
    await daemon.stop()
    names = [line["event"] for line in daemon.log]
    assert names.index("resumed") < names.index("session bound")


async def test_a_run_that_is_no_json_is_refused(daemon: Daemon) -> None:
    reply = await daemon.request("POST", f"{HOOKS}/run", data=b"{")
    assert (reply.status, reply.json["error"]) == (400, "invalid_request")


async def test_terminate_ends_what_runs_and_wipes(daemon: Daemon) -> None:
    await daemon.execute("open('kept', 'w').write('x')", session=SESSION)
    pushed = batch(Item("hs", "h1", b"of somebody"))
    pushing = {"Content-Type": "application/x-gtar"}
    assert (await daemon.request("POST", "/session/inputs", data=pushed, headers=pushing)).json
    before = (await daemon.get("/health")).incarnation
    reply = await hook(daemon, "terminate")
    assert reply.status == 200
    assert [step["done"] for step in reply.json["steps"]] == [True, True]
    assert (await hook(daemon, "terminate")).status == 200
    assert os.listdir(daemon.data_root / "inputs") == []
    gone = await daemon.get("/session/files", session=SESSION)
    assert (gone.status, gone.json["error"]) == (409, "session_unbound")
    fresh = await daemon.execute("import os; print(os.listdir('.'))", session="new", name="main.py")
    assert fresh.json["run"]["stdout"] == "['main.py']\n"
    assert fresh.incarnation != before


async def test_suspend_syncs_and_says_so(daemon: Daemon) -> None:
    await daemon.execute("open('kept', 'w').write('x')", session=SESSION)
    reply = await hook(daemon, "suspend")
    assert {step["name"]: step["done"] for step in reply.json["steps"]} == {
        "quiesced": True,
        "synced": True,
    }


async def test_suspend_says_what_works_beside_the_session(daemon: Daemon) -> None:
    running = asyncio.create_task(daemon.execute("import time; time.sleep(1.5)"))
    async with asyncio.timeout(5):
        while not os.listdir(daemon.data_root / "jobs"):
            await asyncio.sleep(0.01)
    steps = (await hook(daemon, "suspend")).json["steps"]
    assert {step["name"]: step["done"] for step in steps} == {"quiesced": False, "synced": True}
    assert steps[0]["detail"] == "under way beside the session: 1"
    assert (await running).status == 200


async def test_resume_reports_only_what_was_done(daemon: Daemon) -> None:
    # Right to within what is tolerated, so that the test steps no clock.
    now = datetime.now(UTC).isoformat()
    reply = await hook(daemon, "resume", {"time": now, "seed": "c2VlZA=="})
    steps = {step["name"]: step for step in reply.json["steps"]}
    assert steps["clock"]["done"] is True
    assert "left alone" in steps["clock"]["detail"]
    assert steps["entropy"]["done"] is True
    assert "request" in steps["entropy"]["detail"]
    untimed = await hook(daemon, "resume", {})
    clock = next(step for step in untimed.json["steps"] if step["name"] == "clock")
    assert (clock["done"], clock["detail"]) == (False, "no trustworthy time was given")
    await daemon.wait_ready()


@pytest.mark.parametrize("body", [{"time": "yesterday"}, {"time": "2026-01-01"}, {"seed": "%"}])
async def test_a_resume_with_a_bad_value_does_nothing(daemon: Daemon, body: dict[str, str]) -> None:
    reply = await hook(daemon, "resume", body)
    assert (reply.status, reply.json["error"]) == (400, "invalid_request")
    assert reply.json["field"] in body


async def test_an_age_old_time_is_given_with_an_offset(daemon: Daemon) -> None:
    moment = (datetime.now(UTC) + timedelta(milliseconds=5)).isoformat().replace("+00:00", "Z")
    reply = await hook(daemon, "resume", {"time": moment})
    assert reply.status == 200


async def test_a_clock_that_may_not_be_set_is_not_said_to_be(fast_dir: Path) -> None:
    # Without CAP_SYS_TIME: the test must never step the clock of the machine it runs on.
    bare = ("setpriv", "--bounding-set=-sys_time", "--inh-caps=-sys_time")
    async with Daemon(fast_dir / "root", wrapper=bare) as daemon:
        an_hour_on = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        reply = await hook(daemon, "resume", {"time": an_hour_on})
        steps = {step["name"]: step for step in reply.json["steps"]}
        assert (reply.status, steps["clock"]["done"]) == (200, False)
        assert steps["clock"]["detail"].endswith("not permitted")
        assert [name for name, step in steps.items() if step["done"]] == [
            "entropy",
            "warmed",
            "readiness",
        ]


async def test_clocks_that_stand_apart_from_the_start_are_no_suspend(fast_dir: Path) -> None:
    """As in a VM that was suspended for long before the daemon started."""
    apart = ("unshare", "--time", "--monotonic", "1000000", "--boottime", "5000000")
    async with Daemon(fast_dir / "root", wrapper=apart) as daemon:
        code = "import time; print(time.clock_gettime(7) - time.monotonic() > 3_000_000)"
        reply = await daemon.execute(f"{code}; time.sleep(2 * {INTERVAL})", session=SESSION)
        assert reply.json["run"]["stdout"] == "True\n"
        slow = await daemon.execute("import time; time.sleep(9)", session=SESSION, run_timeout=500)
        assert slow.json["run"]["outcome"]["kind"] == "timed_out"
        assert not [event for event in daemon.log if event["event"] == "the VM was suspended"]
