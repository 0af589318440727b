"""The terminal beside what else is done with the workspace: restore, checkpoint, execute."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import io
import tarfile

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon
from tests.terminals import attached, connect, refused, shells

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_another_incarnation_is_refused_before_the_upgrade(runner: Daemon) -> None:
    incarnation = (await runner.execute("pass", session=SESSION)).incarnation
    stale = {"X-Expected-Incarnation": "inc_stale"}
    for status, body in (
        await refused(runner, SESSION, headers=stale),
        await refused(runner, SESSION, incarnation="inc_stale"),
    ):
        assert (status, body["error"]) == (412, "incarnation_mismatch")
    status, body = await refused(runner, SESSION, headers=stale, incarnation=incarnation)
    assert (status, body["error"]) == (400, "invalid_request")
    async with attached(runner, SESSION, incarnation=incarnation) as shell:
        assert shell.ready["incarnation"] == incarnation


async def test_a_restore_ends_it_and_the_next_one_sees_the_restored_files(runner: Daemon) -> None:
    await runner.execute("open('kept', 'w').write('old')", session=SESSION)
    archive = (await runner.checkpoint(SESSION)).body
    shell = await connect(runner, SESSION)
    await shell.run("echo new > kept; touch later; (trap '' HUP; sleep 60) & true")
    restoring = asyncio.create_task(runner.restore(SESSION, archive))
    assert await shell.closed() == 4412
    assert shell.frame("error")["error"] == "incarnation_mismatch"
    assert (await restoring).status == 200
    assert shells() == []
    status, _ = await refused(runner, SESSION, terminal=shell.id)
    assert status == 404
    async with attached(runner, SESSION) as again:
        assert await again.run("ls kept later; cat kept; echo") == (
            "ls: cannot access 'later': No such file or directory\nkept\nold\n"
        )


async def test_a_refused_restore_leaves_it_alone(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        reply = await runner.restore(SESSION, b"", headers={"Content-Type": "text/plain"})
        assert reply.status == 415
        assert await shell.run("echo alive") == "alive\n"


async def test_a_checkpoint_beside_a_busy_writer_is_of_one_moment(runner: Daemon) -> None:
    """The writer keeps two files equal; a walk that it went on under would see them differ."""
    write = (
        "import os, itertools\n"
        "for n in itertools.count():\n"
        "    for name in ('a', 'b'):\n"
        "        with open(f'/mnt/data/{name}.new', 'w') as file:\n"
        "            file.write(str(n) * 2000)\n"
        "        os.rename(f'/mnt/data/{name}.new', f'/mnt/data/{name}')\n"
    )
    await runner.execute("pass", session=SESSION, name="writer.py", files=[])
    async with attached(runner, SESSION) as shell:
        word = base64.b64encode(write.encode()).decode()
        await shell.run(f"echo {word} | base64 -d > /tmp/w.py; python3 /tmp/w.py & sleep 0.3")
        etags = set()
        for _ in range(10):
            reply = await runner.checkpoint(SESSION)
            assert reply.status == 200
            etags.add(reply.headers["ETag"])
            files = _files(reply.body)
            first = int(files["session/a"][: len(files["session/a"]) // 2000])
            second = int(files["session/b"][: len(files["session/b"]) // 2000])
            # Between the two renames they differ by one; nowhere by more.
            assert 0 <= first - second <= 1
        assert len(etags) == 10
        # It goes on writing.
        before = await shell.run("cat a | sha1sum")
        await asyncio.sleep(0.05)
        assert await shell.run("cat a | sha1sum") != before


def _files(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                found[member.name] = file.read()
        return found


async def test_it_counts_as_a_change_of_the_workspace(runner: Daemon) -> None:
    """Even where it changed nothing that a walk can see."""
    await runner.execute("open('f', 'w').write('x')", session=SESSION)
    etag = (await runner.checkpoint(SESSION)).headers["ETag"]

    async def known(tag: str) -> bool:
        reply = await runner.checkpoint(SESSION, headers={"If-None-Match": tag})
        return reply.status == 304

    assert await known(etag)
    async with attached(runner, SESSION):
        assert not await known(etag)
        during = (await runner.checkpoint(SESSION)).headers["ETag"]
        assert not await known(during)
    assert not await known(during)
    after = (await runner.checkpoint(SESSION)).headers["ETag"]
    assert after != etag
    assert await known(after)


async def test_a_file_that_is_changed_through_a_mapping_is_seen(runner: Daemon) -> None:
    """On tmpfs such a store leaves no trace that lstat shows."""
    await runner.execute("open('f', 'wb').write(b'0' * 4096)", session=SESSION)
    await asyncio.sleep(0.1)
    await runner.execute("pass", session=SESSION)
    changed = hashlib.sha256(b"1" + b"0" * 4095).hexdigest()
    code = (
        "import mmap, sys\n"
        "with open('/mnt/data/f', 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:\n"
        "    mapped[:1]; print('mapped', flush=True); input(); mapped[0] = 49\n"
        "    print('stored', flush=True); input()\n"
    )
    async with attached(runner, SESSION) as shell:
        word = base64.b64encode(code.encode()).decode()
        await shell.type(f"echo {word} | base64 -d > /tmp/m.py; python3 /tmp/m.py\r")
        await shell.until("mapped\r\n")
        await runner.execute("pass", session=SESSION)
        await shell.type("\r")
        await shell.until("stored\r\n")
        done = await runner.execute("pass", session=SESSION)
        assert [f["sha256"] for f in done.json["files"] if f["name"] == "f"] == [changed]
