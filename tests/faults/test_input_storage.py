"""Inputs and a full disk: on a small file system of its own, so that the kernel says ENOSPC."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.test_inputs import missing, push, reference
from tests.fileserver import FileServer
from tests.harness import Daemon
from tests.mounts import tmpfs
from tests.pushing import Item, batch

MIB = 1 << 20
DISK = 24 * MIB


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path, size=DISK):
        yield tmp_path


@asynccontextmanager
async def daemon_on(disk: Path, **environ: str) -> AsyncIterator[Daemon]:
    small = {"RUNNER_DISK_RESERVE": "64KiB"}
    async with Daemon(disk / "root", small | environ) as daemon:
        yield daemon


def item(name: str, mib: int) -> Item:
    return Item("s", name, os.urandom(MIB) * mib)


async def test_a_download_that_does_not_fit_changes_nothing(small_disk: Path) -> None:
    async with FileServer() as server:
        big = item("big", 30)
        server.put(big.session, big.id, big.body)
        server.put("s", "small", b"small")
        async with daemon_on(small_disk, RUNNER_FILE_SERVER_URL=server.url) as daemon:
            await daemon.execute("open('kept','w').write('kept')", session="s")
            sent = [reference(Item("s", "small", b""), "a"), reference(big, "b")]
            reply = await daemon.execute("1", session="s", files=sent)
            assert (reply.status, reply.json["error"]) == (507, "insufficient_storage")
            assert await daemon.paths("s") == ["kept", "main"]
            assert os.listdir(daemon.data_root / "staging") == []
            reply = await daemon.execute("print(open('a').read())", session="s", files=sent[:1])
            assert reply.json["run"]["stdout"] == "small\n"


async def test_the_cache_makes_room_for_a_download(small_disk: Path) -> None:
    async with FileServer() as server:
        big = item("big", 13)
        server.put(big.session, big.id, big.body)
        async with daemon_on(small_disk, RUNNER_FILE_SERVER_URL=server.url) as daemon:
            needed, spare = item("needed", 3), item("spare", 8)
            for each in (needed, spare):
                assert (await push(daemon, each)).status == 200
            sent = [reference(needed, "needed"), reference(big, "big")]
            # `needed` is copied, so there are two of it; `spare` has to go.
            reply = await daemon.execute("import os; print(os.listdir())", files=sent)
            assert reply.status == 200, reply.json
            assert await missing(daemon, needed, spare) == [spare.key]


async def test_a_push_makes_room_once_and_is_refused_if_that_does_not_help(
    small_disk: Path,
) -> None:
    async with daemon_on(small_disk) as daemon:
        old, new = item("old", 13), item("new", 14)
        assert (await push(daemon, old)).status == 200
        assert (await push(daemon, new)).status == 200
        assert await missing(daemon, old, new) == [old.key]
        reply = await push(daemon, item("larger", 30))
        assert (reply.status, reply.json["error"]) == (507, "insufficient_storage")
        assert os.listdir(daemon.data_root / "staging") == []
        assert (await push(daemon, item("small", 1))).status == 200


async def test_what_is_cached_survives_the_daemon_and_damage_does_not(fast_dir: Path) -> None:
    kept, damaged, short = item("kept", 1), item("damaged", 1), item("short", 1)
    daemon = Daemon(fast_dir / "root")
    async with daemon:
        await push(daemon, kept, damaged, short)
        inputs = daemon.data_root / "inputs"
        assert inputs.stat().st_mode & 0o777 == 0o700
        assert {(p.stat().st_uid, p.stat().st_mode & 0o777) for p in inputs.iterdir()} == {
            (0, 0o600)
        }
        # Damage under the running daemon, and damage that it does not see happen.
        file = next(inputs.glob(f"{damaged.key}.*"))
        file.write_bytes(bytes([damaged.body[0] ^ 1]) + damaged.body[1:])
        assert await missing(daemon, kept, damaged) == [damaged.key]
        await daemon.kill()
    os.truncate(next(inputs.glob(f"{short.key}.*")), 100)
    (inputs / "left-over").write_bytes(b"x")
    async with Daemon(fast_dir / "root") as daemon:
        assert await missing(daemon, kept, damaged, short) == [damaged.key, short.key]
        assert [p.name.split(".")[0] for p in inputs.iterdir()] == [kept.key]
        reply = await daemon.execute(
            "import hashlib; print(hashlib.sha256(open('k','rb').read()).hexdigest())",
            files=[reference(kept, "k")],
        )
        import hashlib

        assert reply.json["run"]["stdout"].strip() == hashlib.sha256(kept.body).hexdigest()


async def test_a_program_cannot_change_what_is_cached(daemon: Daemon) -> None:
    cached = item("cached", 1)
    await push(daemon, cached)
    code = "open('k','r+b').write(b'changed')"
    for _ in range(2):
        reply = await daemon.execute(code, files=[reference(cached, "k")])
        assert reply.json["run"]["code"] == 0
    assert await missing(daemon, cached) == []


async def test_a_stalled_push_blocks_nobody(daemon: Daemon) -> None:
    body = batch(item("slow", 1))
    go_on = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield body[: len(body) // 2]
        await go_on.wait()
        yield body[len(body) // 2 :]

    async def slow_push() -> int:
        headers = {"Content-Type": "application/x-gtar"}
        reply = await daemon.request("POST", "/session/inputs", data=stalling(), headers=headers)
        return reply.status

    stalled = [asyncio.create_task(slow_push()) for _ in range(16)]
    async with asyncio.timeout(20):
        while len(os.listdir(daemon.data_root / "staging")) < 16:
            await asyncio.sleep(0.01)
        # The seventeenth is told to wait; everything else goes on.
        assert (await push(daemon, item("one more", 1))).status == 429
        assert len(await missing(daemon, item("slow", 1))) == 1
        assert (await daemon.execute("1", session="s")).status == 200
        # Some are cut, the others go on where they were.
        for each in stalled[:8]:
            each.cancel()
        go_on.set()
        assert set(await asyncio.gather(*stalled[8:])) == {200}
        while os.listdir(daemon.data_root / "staging"):
            await asyncio.sleep(0.01)
    assert await missing(daemon, item("slow", 1)) == []
