"""A session that has filled its disk: nothing of the daemon's stops working, or it says 507.

On small file systems of the test's own. What is kept aside (RUNNER_DISK_RESERVE) is what lets the
daemon start the program that makes room.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon
from tests.leftovers import settled
from tests.mounts import ext4, tmpfs

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILL = "head -c 200M /dev/zero > /mnt/data/full; exit 1"
MANY = "i=0; mkdir -p m; while : > m/$i; do i=$((i+1)); done; exit 1"
RESERVE = {"RUNNER_DISK_RESERVE": "2MiB"}


@pytest.fixture(params=[tmpfs, ext4])
def small(request: pytest.FixtureRequest, fast_dir: Path) -> Iterator[str]:
    """The name of a data root on a file system of 24 MiB and 1500 inodes."""
    with request.param(fast_dir / "small", size=24 << 20, inodes=1500) as where:
        yield where.name


Launch = Callable[..., Awaitable[Daemon]]


async def filled(small: str, launch: Launch, code: str = FILL) -> Daemon:
    """A daemon whose session has used up its disk."""
    daemon = await launch(small, **RESERVE)
    run = (await bash(daemon, f"echo kept > kept; {code}")).json["run"]
    assert (run["outcome"]["kind"], run["outcome"]["fault"]) == ("storage_full", "limit"), run
    return daemon


async def bash(daemon: Daemon, code: str, **more: Any) -> Any:
    return await daemon.execute(code, language="bash", session=SESSION, **more)


def used_up(daemon: Daemon) -> tuple[int, int]:
    space = os.statvfs(daemon.data_root)
    return space.f_bavail * space.f_frsize, space.f_favail


@pytest.mark.parametrize("code", [FILL, MANY], ids=["bytes", "inodes"])
async def test_the_program_that_makes_room_is_started(
    small: str, launch: Launch, code: str
) -> None:
    daemon = await filled(small, launch, code)
    # Many new programs, each of which has to be put there.
    for number in range(5):
        run = (await bash(daemon, f"cat kept; exit {number}")).json["run"]
        assert (run["stdout"], run["code"]) == ("kept\n", number), run
    run = (await bash(daemon, "rm -rf full m; echo more > more; cat more")).json["run"]
    assert run["stdout"] == "more\n", run
    health = (await daemon.get("/health")).json
    assert health["status"] == "healthy" and health["session"]["dirty"] is None


async def test_a_full_disk_is_saved_wiped_and_restored(small: str, launch: Launch) -> None:
    daemon = await filled(small, launch)
    saved = await daemon.checkpoint(SESSION)
    assert saved.status == 200
    # What is saved does not fit beside what is there: refused, and then the workspace is empty.
    refused = await daemon.restore(SESSION, saved.body)
    assert (refused.status, refused.json["error"]) == (507, "insufficient_storage")
    assert await daemon.paths(SESSION) == []
    assert (await daemon.get("/health")).json["session"]["dirty"] is None
    # A second time it fits.
    restored = await daemon.restore(SESSION, saved.body)
    assert restored.status == 200, restored.body
    run = (await bash(daemon, "cat kept; rm full; echo more > more && cat more")).json["run"]
    assert run["stdout"] == "kept\nmore\n", run


async def test_a_broken_archive_on_a_full_disk_wipes_and_says_so(
    small: str, launch: Launch
) -> None:
    daemon = await filled(small, launch)
    await bash(daemon, "truncate -s -1M full; sync")
    saved = (await daemon.checkpoint(SESSION)).body
    await bash(daemon, "head -c 9M /dev/zero > again")
    reply = await daemon.restore(SESSION, saved[: len(saved) // 2])
    assert reply.status in (422, 507), reply.body
    assert await daemon.paths(SESSION) == []
    assert (await bash(daemon, "echo on > on && cat on")).json["run"]["stdout"] == "on\n"


@pytest.mark.parametrize("code", [FILL, MANY], ids=["bytes", "inodes"])
async def test_a_full_disk_is_terminated_and_free_for_the_next(
    small: str, launch: Launch, code: str
) -> None:
    daemon = await filled(small, launch, code)
    reply = await daemon.request("POST", "/aws/lambda-microvms/runtime/v1/terminate")
    assert reply.status == 200, reply.body
    next_one = await daemon.execute("ls; echo x > x; cat x", language="bash", session="the-next")
    assert next_one.json["run"]["stdout"] == "main\nx\n"


async def test_a_daemon_starts_again_on_a_full_disk(small: str, launch: Launch) -> None:
    daemon = await filled(small, launch)
    before = (await daemon.get("/health")).json["session"]["incarnation"]
    await daemon.kill()
    again = await launch(small, **RESERVE)
    assert (await again.get("/health")).json["session"]["incarnation"] == before
    assert (await bash(again, "cat kept; rm full")).json["run"]["stdout"] == "kept\n"


async def test_what_does_not_fit_is_507_and_changes_nothing(small: str, launch: Launch) -> None:
    daemon = await filled(small, launch)
    large = [{"name": "large", "content": "x" * (4 << 20)}]
    reply = await bash(daemon, "true", files=large)
    assert (reply.status, reply.json["error"]) == (507, "insufficient_storage")
    put = await daemon.request("PUT", "/session/files/put", session=SESSION, data=b"x" * (4 << 20))
    assert (put.status, put.json["error"]) == (507, "insufficient_storage")
    stateless = await daemon.execute("true", language="bash")
    assert stateless.status in (200, 507), stateless.body
    assert (await daemon.get("/health")).json["session"]["dirty"] is None
    assert (await bash(daemon, "cat kept")).json["run"]["stdout"] == "kept\n"
    assert await daemon.paths(SESSION) == ["full", "kept", "main"]


async def test_the_reserve_is_made_again_when_there_is_room(small: str, launch: Launch) -> None:
    daemon = await filled(small, launch)
    # But for the moment in which a record is written into it, or a probe runs.
    assert await settled(lambda: used_up(daemon)[0] < 64 << 10, True)
    await bash(daemon, "rm full")
    before, inodes = used_up(daemon)
    held = [path for path in (daemon.data_root / "state").iterdir() if "reserve" in path.name]
    assert len(held) == 16 and sum(each.stat().st_blocks * 512 for each in held) >= 2 << 20
    assert before > 15 << 20 and inodes > 300
