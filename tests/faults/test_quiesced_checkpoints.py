"""A checkpoint beside processes that go on writing: of one moment, or none at all."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import SESSION
from tests.harness import Daemon
from tests.leftovers import TEST_UID, assert_nothing_left, jail_groups, processes_of
from tests.terminals import Shell, attached, connect

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Appends one line to each of two files in turn: nowhere may one be more than a line ahead.
WRITER = """
import itertools, time
a, b = open('/mnt/data/a', 'a', 1), open('/mnt/data/b', 'a', 1)
for n in itertools.count():
    a.write(f'{n:08}\\n'); b.write(f'{n:08}\\n')
    if n % 50 == 0: time.sleep(0.002)
"""


async def begin_writing(shell: Shell) -> None:
    word = base64.b64encode(WRITER.encode()).decode()
    await shell.run(f"rm -f a b; echo {word} | base64 -d > /tmp/w.py; python3 /tmp/w.py & sleep .3")


def lines(archive: bytes) -> tuple[int, int]:
    """How many whole lines each file has, and nothing but whole lines."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as tar:
        bodies = [tar.extractfile(f"session/{name}").read() for name in ("a", "b")]  # type: ignore[union-attr]
    for body in bodies:
        count = len(body) // 9
        assert body == b"".join(b"%08d\n" % n for n in range(count))
    return len(bodies[0]) // 9, len(bodies[1]) // 9


async def test_two_files_that_grow_in_lock_step_are_of_one_moment(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        await begin_writing(shell)
        seen = []
        for _ in range(8):
            reply = await runner.checkpoint(SESSION)
            assert reply.status == 200
            ahead, behind = lines(reply.body)
            assert 0 <= ahead - behind <= 1
            seen.append(ahead)
            await asyncio.sleep(0.05)
        # It goes on writing in between.
        assert seen == sorted(seen) and seen[-1] > seen[0]


async def test_without_a_freezer_it_is_of_one_moment_or_fails(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch("first", RUNNER_CGROUPS="off")
    await daemon.execute("pass", session=SESSION)
    async with attached(daemon, SESSION) as shell:
        await begin_writing(shell)
        for _ in range(8):
            reply = await daemon.checkpoint(SESSION)
            if reply.status == 200:
                ahead, behind = lines(reply.body)
                assert 0 <= ahead - behind <= 1
            else:
                assert (reply.status, reply.json["reason"]) == (500, "unstable")
                assert reply.json["retryable"] and not reply.json["recycle"]
        assert any(event.get("event", "").endswith("once more") for event in daemon.log)
        await shell.run("kill %1; sleep .1")
        assert (await daemon.checkpoint(SESSION)).status == 200


async def stalled(daemon: Daemon) -> aiohttp.ClientResponse:
    """A checkpoint whose client has stopped reading: the walk, and the freeze, go on."""
    response = await daemon.client.get(
        "/session/checkpoint", headers={"X-Runtime-Session-Id": SESSION}
    )
    assert response.status == 200
    return response


def is_frozen(daemon: Daemon) -> bool:
    """Whether one of the daemon's jails is."""
    for group in map(Path, jail_groups(daemon.data_root)):
        for name, yes in (("cgroup.freeze", "1"), ("freezer.state", "FROZEN")):
            file = group / name
            if file.exists() and file.read_text().strip() == yes:
                return True
    return False


async def test_no_frozen_jail_outlives_its_daemon(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch("first")
    code = "import os\nfor n in range(32): open(f'n{n}', 'wb').write(os.urandom(1 << 20))"
    assert (await daemon.execute(code, session=SESSION)).json["run"]["code"] == 0
    shell = await connect(daemon, SESSION)
    await begin_writing(shell)
    response = await stalled(daemon)
    async with asyncio.timeout(5):
        while not is_frozen(daemon):
            await asyncio.sleep(0.01)
    assert processes_of(TEST_UID)
    await daemon.kill()
    response.close()
    deadline = time.monotonic() + 5
    while processes_of(TEST_UID):
        assert time.monotonic() < deadline, processes_of(TEST_UID)
        await asyncio.sleep(0.02)
    daemon = await launch("first")
    assert (await daemon.execute("print(1)", session=SESSION)).json["run"]["stdout"] == "1\n"
    await assert_nothing_left(daemon.data_root)


async def test_a_client_that_leaves_lets_the_terminal_go_on(runner: Daemon) -> None:
    code = "import os\nfor n in range(32): open(f'n{n}', 'wb').write(os.urandom(1 << 20))"
    assert (await runner.execute(code, session=SESSION)).json["run"]["code"] == 0
    async with attached(runner, SESSION) as shell:
        response = await stalled(runner)
        async with asyncio.timeout(5):
            while not is_frozen(runner):
                await asyncio.sleep(0.01)
        response.close()
        assert await shell.run("echo alive") == "alive\n"
        assert not is_frozen(runner)
