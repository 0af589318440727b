"""A clean start, or none and the reason; a clean stop, and an exit status that tells the truth."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.app import COMPATIBLE_PREFIX, ROUTES, Access
from tests.conftest import SESSION
from tests.e2e.test_start_refused import start_refused
from tests.harness import Daemon
from tests.leftovers import TEST_UID, cgroups_of, processes_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    "allowed",
    [{"RUNNER_TOKEN": "t"}, {"RUNNER_TRUSTED_PROXY": "true"}],
    ids=lambda e: next(iter(e)),
)
async def test_an_open_address_with_a_token_or_a_proxy_is_served(
    launch: Callable[..., Any], allowed: dict[str, str]
) -> None:
    daemon: Daemon = await launch(RUNNER_HOST="0.0.0.0", **allowed)
    assert (await daemon.get("/health")).status == 200


async def test_an_address_in_use_stops_the_start(runner: Daemon, fast_dir: Path) -> None:
    port = runner.url.rpartition(":")[2]
    said = await asyncio.to_thread(start_refused, fast_dir / "other", RUNNER_PORT=port)
    assert "cannot serve" in said
    assert not cgroups_of(fast_dir / "other")


async def test_a_second_daemon_on_the_same_data_is_refused(runner: Daemon) -> None:
    said = await asyncio.to_thread(start_refused, runner.data_root)
    assert "in use" in said
    assert (await runner.execute("print(1)", session=SESSION)).json["run"]["stdout"] == "1\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_jails_and_then_the_daemon_by_that_signal(
    launch: Callable[..., Any], number: signal.Signals
) -> None:
    daemon: Daemon = await launch()
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); open('on', 'w'); time.sleep(25)"
    running = [
        asyncio.create_task(daemon.execute(code, session=session)) for session in (SESSION, None)
    ]
    while not (daemon.data_root / "workspace/on").exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    begun = time.monotonic()
    os.kill(daemon.pid, number)
    replies = await asyncio.gather(*running)
    assert time.monotonic() - begun < 5
    for reply in replies:
        assert reply.status == 200
        assert reply.json["run"]["outcome"]["kind"] == "cancelled"
    assert await daemon.ended() == -number
    assert processes_of(TEST_UID) == [] and cgroups_of(daemon.data_root) == []
    assert os.listdir(daemon.data_root / "jobs") == []


async def test_a_stop_is_quick_when_nothing_runs(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("pass", session=SESSION)
    begun = time.monotonic()
    assert await daemon.stop() == -signal.SIGTERM
    assert time.monotonic() - begun < 2
    await daemon.start()
    assert (await daemon.get("/health")).json["session"]["state"] == "ready"


async def test_a_client_that_keeps_a_connection_open_does_not_keep_the_daemon(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch(RUNNER_STOP_TIMEOUT="1s")
    host, port = daemon.url.removeprefix("http://").split(":")
    _, idle = await asyncio.open_connection(host, int(port))
    _, slow = await asyncio.open_connection(host, int(port))
    slow.write(b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    await slow.drain()
    begun = time.monotonic()
    assert await daemon.stop() == -signal.SIGTERM
    assert time.monotonic() - begun < 3
    idle.close()
    slow.close()


async def test_a_token_is_needed_for_all_but_health(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch(RUNNER_TOKEN="right")
    assert (await daemon.get("/health")).status == 200
    assert (await daemon.get("/api/v2/health?level=alive")).status == 200
    closed = [
        (route.method, prefix + re.sub(r"{.*}", "x", route.path))
        for route in ROUTES
        for prefix in ("", COMPATIBLE_PREFIX)
        if route.access is not Access.ANYONE
    ]
    assert len(closed) >= 2 * 8
    for method, path in [*closed, ("GET", "/nothing"), ("PUT", "/health/x")]:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            reply = await daemon.request(method, path, headers=headers)
            assert (reply.status, reply.json["error"]) == (401, "unauthorized"), (method, path)
            assert reply.headers["WWW-Authenticate"] == "Bearer"
    for value in ("right", "Basic right", "Bearer ", "Bearer rïght", "Bearer right,right"):
        reply = await daemon.get("/runtimes", headers={"Authorization": value})
        assert reply.status == 401, value
    good = {"Authorization": "Bearer right"}
    for scheme in ("Bearer", "bearer", "BEARER"):
        headers = {"Authorization": f"{scheme} right"}
        assert (await daemon.get("/runtimes", headers=headers)).status == 200
    assert (await daemon.execute("pass", session=SESSION, headers=good)).status == 200


async def test_health_says_what_was_really_tried(runner: Daemon) -> None:
    report = (await runner.get("/health")).json
    checks = {check["name"]: check["ok"] for check in report["checks"]}
    assert (
        checks.items() >= dict.fromkeys(("jail", "workspace", "isolation", "limits"), True).items()
    )
    assert report["limits"]["memory"] in ("enforced", "advisory")
    alive = await runner.get("/health?level=alive")
    assert (alive.status, alive.json["level"]) == (200, "alive")
    bad = await runner.get("/health?level=maybe")
    assert (bad.status, bad.json["field"]) == (400, "level")
    assert bad.json["message"].endswith("level is alive or ready")


async def test_head_of_health_is_its_status_without_its_body(runner: Daemon) -> None:
    for path, status in (("/health", 200), ("/health?level=alive", 200), ("/health?level=no", 400)):
        reply = await runner.request("HEAD", path)
        assert (reply.status, reply.body) == (status, b"")
    assert (await runner.request("HEAD", "/runtimes")).status == 404


async def test_health_is_not_ready_with_an_nsjail_that_does_not_work(
    launch: Callable[..., Any],
) -> None:
    broken: Daemon = await launch(ready=False, RUNNER_NSJAIL="/bin/false")
    async with asyncio.timeout(10):
        while (await broken.get("/health")).json["checked_seconds_ago"] is None:
            await asyncio.sleep(0.05)
    reply = await broken.get("/health")
    assert reply.status == 503
    failed = {check["name"] for check in reply.json["checks"] if not check["ok"]}
    assert "jail" in failed
    assert (await broken.get("/health?level=alive")).status == 200
    execute = await broken.execute("pass", session=SESSION)
    assert (execute.status, execute.json["error"]) == (500, "jail_failed")
    assert (execute.json["retryable"], execute.json["recycle"]) == (True, False)
    assert execute.json["outcome"]["kind"] == "jail_failed"


async def test_metrics_count_by_route_and_outcome(runner: Daemon) -> None:
    await runner.execute("exit 3", language="bash", session=SESSION)
    text = (await runner.get("/metrics")).body.decode()
    counted = re.search(
        r'^runner_requests_total{.*route="/execute",status="200"} (\d+)', text, re.M
    )
    assert counted is not None and int(counted[1]) >= 1
    assert re.search(r'^runner_outcomes_total{fault="user",kind="exited",stage="run"} ', text, re.M)
    assert 'runner_session_state{state="ready"} 1.0' in text
    assert SESSION not in text
