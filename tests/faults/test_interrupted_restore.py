"""A restore that is refused, cut off or killed: refused before it begins it has changed nothing,
after that it has left nothing.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon, Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20
FILL = """
import os
for n in range(4): open(f'noise-{n}', 'wb').write(os.urandom(1 << 20))
"""


async def state_of(daemon: Daemon) -> tuple[str, str | None]:
    session = (await daemon.get("/health")).json["session"]
    return session["state"], session["dirty"]


async def until_state(daemon: Daemon, wanted: str) -> None:
    async with asyncio.timeout(10):
        while (await state_of(daemon))[0] != wanted:
            await asyncio.sleep(0.01)


async def caught(daemon: Daemon, archive: bytes) -> asyncio.Task[Reply]:
    """A restore that is under way; one that was over before it was seen is sent again."""
    async with asyncio.timeout(20):
        while True:
            await daemon.execute("open('of-before', 'w')", session=SESSION)
            restoring = asyncio.create_task(daemon.restore(SESSION, archive))
            while not restoring.done():
                if (await state_of(daemon))[0] == "restoring":
                    return restoring


async def filled(daemon: Daemon) -> bytes:
    """Its archive, after which it holds another file as well."""
    assert (await daemon.execute(FILL, session=SESSION)).json["run"]["code"] == 0
    archive = (await daemon.checkpoint(SESSION)).body
    assert len(archive) > 4 * MIB
    await daemon.execute("open('later', 'w').write('x')", session=SESSION)
    return archive


async def assert_wiped(daemon: Daemon) -> None:
    """Empty as the daemon and as a program see it, and nothing half-made in the way."""
    assert await state_of(daemon) == ("fresh", None)
    assert await daemon.paths(SESSION) == []
    assert os.listdir(daemon.data_root / "staging") == []
    reply = await daemon.execute("import os; print(os.listdir('.'))", session=SESSION)
    assert reply.json["run"]["stdout"] == "['main']\n"


BEFORE_IT_BEGINS: dict[str, tuple[dict[str, str], int, str]] = {
    "another media type": ({"Content-Type": "text/html"}, 415, "unsupported_media_type"),
    "a body that is to be inflated": ({"Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
    "a malformed key": ({"X-Sidecar-Key": "x"}, 400, "invalid_request"),
    "a malformed expectation": ({"X-Expected-Incarnation": ""}, 400, "invalid_request"),
    "another incarnation": ({"X-Expected-Incarnation": "x"}, 412, "incarnation_mismatch"),
}


@pytest.mark.parametrize("name", BEFORE_IT_BEGINS)
async def test_refused_before_it_begins_it_changes_nothing(runner: Daemon, name: str) -> None:
    headers, status, code = BEFORE_IT_BEGINS[name]
    await runner.execute("open('kept', 'w').write('x')", session=SESSION)
    before = (await runner.get("/session/files", session=SESSION)).body
    reply = await runner.restore(SESSION, b"x" * 1000, headers=headers)
    assert (reply.status, reply.json["error"]) == (status, code)
    assert (await runner.get("/session/files", session=SESSION)).body == before
    assert await state_of(runner) == ("ready", None)
    again = await runner.execute("pass", session=SESSION)
    assert again.json["files"] == [], "what was surfaced is still known"


async def chunked(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_declared_size_over_the_cap_changes_nothing(launch: Callable[..., Any]) -> None:
    small: Daemon = await launch(RUNNER_CHECKPOINT_MAX_BYTES="1MiB")
    await small.execute("open('kept', 'w').write('x')", session=SESSION)
    reply: Reply = await small.restore(SESSION, b"x" * (2 * MIB))
    assert (reply.status, reply.json["error"]) == (413, "checkpoint_too_large")
    assert reply.json["reason"] == "declared"
    assert await small.paths(SESSION) == ["kept", "main"]
    # The same without a declared size is only seen under way: it has begun, so it wipes.
    reply = await small.restore(SESSION, chunked(b"\x1f\x8b\x08\x00\0\0\0\0\0\xff", bytes(2 * MIB)))
    assert reply.status in (413, 422)
    assert await small.paths(SESSION) == []
    # And a workspace that has become too large for a checkpoint says so by name.
    code = "import os; open('big', 'wb').write(os.urandom(2 << 20))"
    await small.execute(code, session=SESSION)
    reply = await small.checkpoint(SESSION)
    assert (reply.status, reply.json["error"]) == (413, "checkpoint_too_large")
    assert await state_of(small) == ("ready", None)


async def send_part(daemon: Daemon, archive: bytes, share: float = 0.5) -> asyncio.StreamWriter:
    """Begins a restore on a connection of its own and sends the first part of the archive."""
    host, port = daemon.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /session/restore HTTP/1.1\r\nHost: x\r\nX-Runtime-Session-Id: {SESSION}\r\n"
        f"Content-Type: application/x-gtar\r\nContent-Length: {len(archive)}\r\n\r\n"
    )
    writer.write(head.encode() + archive[: int(len(archive) * share)])
    await writer.drain()
    await until_state(daemon, "restoring")
    return writer


@pytest.mark.parametrize("way", ["closes", "resets"])
async def test_a_client_that_is_lost_leaves_an_empty_session(runner: Daemon, way: str) -> None:
    archive = await filled(runner)
    writer = await send_part(runner, archive)
    if way == "resets":
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER
    writer.close()
    await until_state(runner, "fresh")
    await assert_wiped(runner)
    assert (await runner.restore(SESSION, archive)).status == 200
    assert "noise-3" in await runner.paths(SESSION)


async def test_a_restore_under_way_lets_health_answer_and_others_wait(runner: Daemon) -> None:
    archive = await filled(runner)
    writer = await send_part(runner, archive)
    waiting = asyncio.create_task(runner.execute("print('after')", session=SESSION))
    await asyncio.sleep(0.1)
    assert not waiting.done() and (await state_of(runner))[0] == "restoring"
    writer.write(archive[len(archive) // 2 :])
    assert (await waiting).json["run"]["stdout"] == "after\n"
    assert "noise-0" in await runner.paths(SESSION)
    writer.close()


@pytest.mark.parametrize("share", [0.0, 0.9])
async def test_a_daemon_killed_under_way_starts_with_an_empty_session(
    launch: Callable[..., Any], share: float
) -> None:
    daemon: Daemon = await launch()
    archive = await filled(daemon)
    incarnation = (await daemon.get("/health")).incarnation
    writer = await send_part(daemon, archive, share)
    await daemon.kill()
    writer.close()
    await daemon.start()
    assert (await daemon.get("/health")).incarnation == incarnation
    await assert_wiped(daemon)
    assert (await daemon.restore(SESSION, archive)).status == 200
    assert "noise-3" in await daemon.paths(SESSION)


async def test_a_daemon_killed_at_any_moment_has_all_of_the_archive_or_nothing(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch()
    archive = await filled(daemon)
    assert (await daemon.restore(SESSION, archive)).status == 200
    whole = await daemon.paths(SESSION)
    for milliseconds in (3, 12, 30):
        restoring = await caught(daemon, archive)
        await asyncio.sleep(milliseconds / 1000)
        await daemon.kill()
        await asyncio.wait({restoring})
        await daemon.start()
        assert (await state_of(daemon))[1] is None
        assert await daemon.paths(SESSION) in ([], whole), milliseconds
        assert os.listdir(daemon.data_root / "staging") == []


async def test_a_daemon_that_is_stopped_under_way_leaves_an_empty_session(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch(RUNNER_STOP_TIMEOUT="500ms")
    archive = await filled(daemon)
    writer = await send_part(daemon, archive)
    assert await daemon.stop() == -15
    writer.close()
    await daemon.start()
    await assert_wiped(daemon)
