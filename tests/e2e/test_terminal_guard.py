"""What a terminal is let onto, and what ends it: the workspace it stands on, and nothing else."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.harness import Daemon
from tests.leftovers import TEST_UID, assert_nothing_left, settled
from tests.terminals import attached, connect, cut, refused, shells

Start = Callable[..., Awaitable[Daemon]]

SESSION = "guarded"
UID = {"RUNNER_SESSION_UID": str(TEST_UID)}
PROVISION = (
    "#!/bin/sh\nprintf provisioned > /mnt/data/.marker\necho 'set up' > /mnt/data/.profile\n"
)


@pytest.fixture
def hooks(tmp_path: Path) -> str:
    """A directory with one boot hook, which leaves a marker."""
    directory = tmp_path / "boot.d"
    directory.mkdir()
    hook = directory / "10-marker"
    hook.write_text(PROVISION)
    hook.chmod(0o755)
    return str(directory)


async def test_an_attach_without_a_boot_gets_a_provisioned_shell(start: Start, hooks: str) -> None:
    daemon = await start(RUNNER_BOOT_HOOKS=hooks, **UID)
    async with attached(daemon, SESSION) as shell:
        assert await shell.run("cat .marker; echo") == "provisioned\n"


async def test_eight_attaches_at_once_provision_once_and_one_gets_in(
    start: Start, hooks: str
) -> None:
    counting = Path(hooks, "20-count")
    counting.write_text("#!/bin/sh\nsleep 0.2; echo x >> /mnt/data/count\n")
    counting.chmod(0o755)
    daemon = await start(RUNNER_BOOT_HOOKS=hooks, **UID)
    outcomes = await asyncio.gather(
        *(connect(daemon, SESSION) for _ in range(8)), return_exceptions=True
    )
    inside = [each for each in outcomes if not isinstance(each, BaseException)]
    assert len(inside) == 1
    assert {each.status for each in outcomes if isinstance(each, BaseException)} == {409}  # type: ignore[attr-defined]
    assert await inside[0].run("cat count") == "x\n"
    await inside[0].hang_up()


async def test_the_published_failure_live(start: Start, hooks: str) -> None:
    """Provisioned; the disk is lost and the daemon with it; a client comes back by itself.

    What a deployed design did there was to let it onto a container that nothing had set up.
    """
    environ = {"RUNNER_BOOT_HOOKS": hooks, **UID}
    daemon = await start("vm", **environ)
    shell = await connect(daemon, SESSION)
    assert await shell.run("cat .marker; echo") == "provisioned\n"
    old = shell.ready["incarnation"]
    await daemon.kill()
    shutil.rmtree(daemon.data_root)

    await daemon.start()
    # Who still believes in the old one is told, before the upgrade, and nothing is begun.
    status, body = await refused(daemon, SESSION, terminal=shell.id, incarnation=old)
    assert (status, body["error"]) == (412, "incarnation_mismatch")
    assert not (daemon.data_root / "workspace").exists()
    # Who just comes, with no boot call, gets a shell on a provisioned incarnation.
    async with attached(daemon, SESSION) as again:
        assert again.ready["incarnation"] != old
        assert await again.run("cat .marker; echo") == "provisioned\n"


async def test_a_failing_boot_lets_nobody_in(start: Start, hooks: str) -> None:
    Path(hooks, "10-marker").write_text("#!/bin/sh\nexit 5\n")
    daemon = await start(RUNNER_BOOT_HOOKS=hooks, **UID)
    status, body = await refused(daemon, SESSION)
    assert (status, body["error"], body["hook"]) == (500, "boot_failed", "10-marker")
    Path(hooks, "10-marker").write_text(PROVISION)
    async with attached(daemon, SESSION) as shell:
        assert await shell.run("cat .marker; echo") == "provisioned\n"


async def test_a_dirty_session_and_a_strangers_are_refused(start: Start) -> None:
    daemon = await start(**UID)
    await daemon.execute("pass", session=SESSION)
    status, body = await refused(daemon, "somebody-else")
    assert (status, body["reason"]) == (409, "other_session")
    shutil.rmtree(daemon.data_root / "workspace")
    status, body = await refused(daemon, SESSION)
    assert (status, body["error"]) == (409, "session_workspace_dirty")
    assert body["reason"] == "workspace_missing"
    status, body = await refused(daemon, SESSION)
    assert (status, body["recycle"]) == (409, True)


async def test_a_workspace_that_is_lost_ends_it(start: Start) -> None:
    daemon = await start(**UID)
    shell = await connect(daemon, SESSION)
    shutil.rmtree(daemon.data_root / "workspace")
    assert await shell.closed() == 4412
    assert shell.frame("error")["reason"] == "workspace_missing"


async def test_the_platform_takes_the_vm_back(start: Start) -> None:
    daemon = await start(**UID)
    shell = await connect(daemon, SESSION)
    hook = "/aws/lambda-microvms/runtime/v1/terminate"
    assert (await daemon.request("POST", hook)).status == 200
    assert await shell.closed() == 4412
    assert shells() == []


async def test_a_daemon_that_stops_says_goodbye(start: Start) -> None:
    daemon = await start("leaving", **UID)
    shell = await connect(daemon, SESSION)
    process = Path(f"/proc/{daemon.pid}")
    os.kill(daemon.pid, signal.SIGTERM)
    assert await shell.closed() == 1001
    # A second signal would end it at once.
    assert await settled(process.exists, False) is False
    assert await daemon.stop() == -signal.SIGTERM
    assert shells() == []


# Time


async def test_the_grace_ends_what_nobody_comes_back_to(start: Start) -> None:
    daemon = await start(RUNNER_TERMINAL_GRACE="300ms", **UID)
    shell = await connect(daemon, SESSION)
    await shell.run("(trap '' HUP; sleep 60) & true")
    cut(shell)
    await asyncio.sleep(0.1)
    assert shells() != []
    await asyncio.sleep(0.5)
    assert await settled(shells, []) == []
    await assert_nothing_left(daemon.data_root)


@pytest.mark.parametrize("limit", ["RUNNER_TERMINAL_IDLE_TIMEOUT", "RUNNER_TERMINAL_TOTAL_TIMEOUT"])
async def test_no_terminal_lives_for_ever(start: Start, limit: str) -> None:
    daemon = await start(**{limit: "500ms"}, **UID)
    shell = await connect(daemon, SESSION)
    assert await shell.closed() == 1000
    assert shell.frame("exit")["outcome"]["kind"] == "timed_out"


async def test_who_works_is_not_idle(start: Start) -> None:
    daemon = await start(RUNNER_TERMINAL_IDLE_TIMEOUT="600ms", **UID)
    async with attached(daemon, SESSION) as shell:
        for _ in range(8):
            await shell.run("true")
            await asyncio.sleep(0.15)
