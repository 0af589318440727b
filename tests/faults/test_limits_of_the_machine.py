"""Outcomes that the machine decides: a full disk, no controllers, no nsjail. Told over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jail.host import find_nsjail
from tests.conftest import SESSION
from tests.harness import Daemon
from tests.mounts import ext4, tmpfs

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILL = "head -c 200M /dev/zero > /mnt/data/file"
MANY = "i=0; while : > /mnt/data/$i; do i=$((i+1)); done; exit 1"


@pytest.fixture(params=[tmpfs, ext4])
def small_root(request: pytest.FixtureRequest, fast_dir: Path) -> Iterator[str]:
    """The name of a data root on a file system of 24 MiB and 3000 inodes."""
    with request.param(fast_dir / "small", size=24 << 20, inodes=3000) as where:
        yield where.name


async def test_a_full_disk_is_the_programs_limit_and_the_daemon_lives(
    small_root: str, launch: Callable[..., Any]
) -> None:
    daemon: Daemon = await launch(small_root)
    for code in (FILL, MANY):
        reply = await daemon.execute(code, language="bash")
        run = reply.json["run"]
        assert (run["outcome"]["kind"], run["outcome"]["fault"]) == ("storage_full", "limit"), run
        assert run["outcome"]["evidence"]["storage_full"] is True and run["status"] == "RE"
    # Its own room is gone with it: the next one starts with an empty disk.
    reply = await daemon.execute(f"{FILL}; rm /mnt/data/file; exit 3", language="bash")
    assert (reply.json["run"]["outcome"]["kind"], reply.json["run"]["code"]) == ("exited", 3)
    reply = await daemon.execute("echo fine", language="bash")
    assert reply.json["run"]["stdout"] == "fine\n"


async def test_without_controllers_health_says_advisory_and_so_does_the_evidence(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch(RUNNER_CGROUPS="off")
    health = (await daemon.get("/health")).json
    assert health["status"] == "healthy"
    assert {health["limits"][name] for name in ("memory", "pids", "cpu")} == {"advisory"}
    assert health["limits"]["wall_clock"] == "enforced"
    run = (await daemon.execute("exit 7", language="bash", session=SESSION)).json["run"]
    assert (run["outcome"]["kind"], run["code"]) == ("exited", 7)
    evidence = run["outcome"]["evidence"]
    assert evidence["enforcement"] == "advisory" and evidence["oom_kills"] is None
    # What cannot be counted is still measured.
    assert run["memory"] > 0 and run["wall_time"] > 0


async def test_an_nsjail_that_goes_away_is_our_failure_and_changes_nothing(
    launch: Callable[..., Any], fast_dir: Path
) -> None:
    real = find_nsjail()
    assert real is not None
    nsjail = fast_dir / "nsjail"
    nsjail.symlink_to(real)
    daemon: Daemon = await launch(RUNNER_NSJAIL=str(nsjail), RUNNER_SPARE_JAILS="0")
    await daemon.execute("echo kept > kept", language="bash", session=SESSION)
    nsjail.unlink()
    reply = await daemon.execute("true", language="bash", session=SESSION)
    assert (reply.status, reply.json["error"]) == (500, "jail_failed")
    assert reply.json["retryable"] is True and reply.json["recycle"] is False
    assert reply.json["outcome"]["kind"] == "jail_failed"
    assert reply.json["outcome"]["evidence"]["setup_failure"] == "nsjail_missing"
    assert str(fast_dir) not in reply.body.decode()
    nsjail.symlink_to(real)
    reply = await daemon.execute("cat kept", language="bash", session=SESSION)
    assert reply.json["run"]["stdout"] == "kept\n"
