"""Disks of a few MiB that are full, or become it: what does not fit is told, by name, in time."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon
from tests.mounts import ext4

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20
KEY = {"X-Sidecar-Key": "K" * 43}
EXPANDED = "X-Checkpoint-Expanded-Bytes"
NOISE = "import os; open('noise', 'wb').write(os.urandom(9 << 20))"
FILL = """
f = open('fill', 'wb', buffering=0)
while True: f.write(bytes(4096))
"""


@pytest.fixture
def disk(fast_dir: Path) -> Iterator[Path]:
    """An ext4 of 18 MiB, where the data root `small` of `launch` is."""
    with ext4(fast_dir / "small", size=18 * MIB) as where:
        yield where


async def state(daemon: Daemon) -> tuple[str, str | None]:
    session = (await daemon.get("/health")).json["session"]
    return session["state"], session["dirty"]


async def archive_of_9_mib(launch: Callable[..., Any]) -> Any:
    big: Daemon = await launch("big")
    assert (await big.execute(NOISE, session=SESSION)).json["run"]["code"] == 0
    return await big.checkpoint(SESSION, headers=KEY)


async def test_a_declared_size_that_does_not_fit_changes_nothing(
    disk: Path, launch: Callable[..., Any]
) -> None:
    saved = await archive_of_9_mib(launch)
    declared = saved.headers[EXPANDED]
    assert 9 * MIB < int(declared) < len(gzip.decompress(saved.body))
    daemon: Daemon = await launch("small", RUNNER_DISK_RESERVE="1MiB")
    await daemon.execute(NOISE + "; open('kept', 'w').write('x')", session=SESSION)
    # The room is there for one of them, not for two.
    reply = await daemon.restore(SESSION, saved.body, headers=KEY | {EXPANDED: declared})
    assert (reply.status, reply.json["error"]) == (507, "insufficient_storage")
    assert reply.json["reason"] == "declared"
    assert await state(daemon) == ("ready", None)
    assert "kept" in await daemon.paths(SESSION)
    # The same without a declaration is seen under way: it has begun, so it wipes.
    reply = await daemon.restore(SESSION, saved.body, headers=KEY)
    assert (reply.status, reply.json["error"]) == (507, "insufficient_storage")
    assert await state(daemon) == ("fresh", None)
    assert await daemon.paths(SESSION) == os.listdir(disk / "staging") == []
    # And now it fits.
    reply = await daemon.restore(SESSION, saved.body, headers=KEY | {EXPANDED: declared})
    assert reply.status == 200, reply.body
    assert await daemon.paths(SESSION) == ["main", "noise"]
    await daemon.stop()


@pytest.mark.parametrize(
    ("value", "status", "error"),
    [
        ("many", 400, "invalid_request"),
        ("-1", 400, "invalid_request"),
        (str(1 << 40), 413, "checkpoint_too_large"),
    ],
)
async def test_a_declared_size_that_is_none_changes_nothing(
    runner: Daemon, value: str, status: int, error: str
) -> None:
    await runner.execute("open('kept', 'w').write('x')", session=SESSION)
    reply = await runner.restore(SESSION, b"x", headers={EXPANDED: value})
    assert (reply.status, reply.json["error"]) == (status, error)
    assert "kept" in await runner.paths(SESSION)


async def test_a_delta_declares_the_whole(runner: Daemon) -> None:
    await runner.execute(NOISE, session=SESSION)
    full = await runner.checkpoint(SESSION)
    await runner.execute("open('more', 'w').write('x')", session=SESSION)
    base = {"If-Checkpoint-Base": full.headers["ETag"]}
    delta = await runner.checkpoint(SESSION, headers=base)
    assert delta.headers["X-Checkpoint-Kind"] == "delta"
    assert len(delta.body) < MIB < int(full.headers[EXPANDED]) < int(delta.headers[EXPANDED])


async def test_a_workspace_that_fills_the_disk_is_saved_and_wiped_all_the_same(
    disk: Path, launch: Callable[..., Any]
) -> None:
    saved = await archive_of_9_mib(launch)
    daemon: Daemon = await launch("small", RUNNER_DISK_RESERVE="1MiB")
    full = await daemon.execute(FILL, session=SESSION)
    assert full.json["run"]["outcome"]["kind"] == "storage_full"
    kept = await daemon.checkpoint(SESSION, headers=KEY)
    assert kept.status == 200 and len(gzip.decompress(kept.body)) > 12 * MIB
    reply = await daemon.restore(SESSION, saved.body, headers=KEY)
    assert (reply.status, reply.json["error"]) == (507, "insufficient_storage")
    assert await state(daemon) == ("fresh", None)
    assert (await daemon.restore(SESSION, saved.body, headers=KEY)).status == 200
    # Killed with a full disk it starts, and says the same.
    assert (await daemon.execute(FILL, session=SESSION)).status == 200
    await daemon.kill()
    await daemon.start()
    assert await state(daemon) == ("ready", None)
    assert await daemon.paths(SESSION) == ["fill", "main", "noise"]
    await daemon.stop()


async def test_a_file_size_limit_on_the_daemon_is_no_room(
    launch: Callable[..., Any], fast_dir: Path
) -> None:
    saved = await archive_of_9_mib(launch)
    limited = Daemon(fast_dir / "limited", wrapper=("prlimit", f"--fsize={4 * MIB}"))
    await limited.start(ready=False)
    try:
        put = "/session/files/file"
        reply = await limited.request("PUT", put, session=SESSION, data=bytes(5 * MIB))
        assert (reply.status, reply.json["error"]) == (507, "insufficient_storage")
        reply = await limited.restore(SESSION, saved.body, headers=KEY)
        assert (reply.status, reply.json["error"]) == (507, "insufficient_storage")
        assert await state(limited) == ("fresh", None)
        assert os.listdir(limited.data_root / "staging") == []
        reply = await limited.request("PUT", put, session=SESSION, data=bytes(3 * MIB))
        assert reply.status == 201
        assert await limited.paths(SESSION) == ["file"]
    finally:
        await limited.stop()
