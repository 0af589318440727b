"""Clients that leave a few milliseconds after they have asked: nothing is kept for any of them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import json
import os
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import SESSION, own_daemon
from tests.fileserver import FileServer
from tests.harness import Daemon
from tests.leftovers import (
    GRACE_S,
    descriptors,
    jail_groups,
    settled,
)
from tests.pushing import Item, batch

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: When they leave, in seconds: before, while and after the daemon opens what they have asked for.
LEAVING_S = (0.0, 0.0005, 0.001, 0.002, 0.004)
AT_ONCE = 16
#: Files that a request fetches and makes: the daemon is still at it when its client leaves.
FILES = 40
HOOKS = "/aws/lambda-microvms/runtime/v1"
_RESETTING = struct.pack("ii", 1, 0)
NOTHING: dict[str, object] = {"descriptors": {}, "jobs": [], "staging": [], "jails": []}


def asks(line: str, body: bytes = b"", *, media: str = "json", session: bool = True) -> bytes:
    head = f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += f"Content-Type: application/{media}\r\n" if body else ""
    head += f"X-Runtime-Session-Id: {SESSION}\r\n" if session else ""
    return head.encode() + b"\r\n" + body


def runs(language: str, code: str, *files: dict[str, Any], session: bool = True) -> bytes:
    sent = [{"name": f"main.{language}", "content": code}, *files]
    body = json.dumps({"language": language, "version": "*", "files": sent}).encode()
    return asks("POST /execute", body, session=session)


GET = asks("GET /session/files/kept")
PUT = asks("PUT /session/files/put", b"x" * 1000, media="octet-stream")
PUSH = asks("POST /session/inputs", batch(Item("s", "f", b"x" * 1000)), media="x-gtar")
#: What: how often for each moment, how many at once.
CASES = {
    "get": (GET, 20, 1),
    "gets": (GET, 30, AT_ONCE),
    "put": (PUT, 10, 1),
    "puts": (PUT, 20, AT_ONCE),
    # The last byte of the body does not come.
    "cut": (PUT[:-1], 10, 1),
    "push": (PUSH, 4, 4),
    "checkpoint": (asks("GET /session/checkpoint"), 4, 2),
    "stateless": (runs("python", "pass", session=False), 4, 4),
    "session": (runs("python", "pass"), 4, 2),
    # Beside the workspace there is a build directory.
    "compiled": (runs("c", "int main(){}", session=False), 2, 4),
    # Jails that were made ahead are ended, and others made.
    "resume": (asks(f"POST {HOOKS}/resume", b"{}"), 1, 1),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[FileServer]:
    async with FileServer() as serving:
        yield serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner(server: FileServer) -> AsyncIterator[Daemon]:
    environ = {
        "RUNNER_FILE_SERVER_URL": server.url,
        "RUNNER_SPARE_JAILS": "3",
    }
    async with own_daemon(**environ) as daemon:
        yield daemon


@contextlib.asynccontextmanager
async def client(daemon: Daemon, asked: bytes) -> AsyncIterator[None]:
    """One that has asked, and leaves at the end of the block without a word."""
    host, port = daemon.url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETTING)
        await loop.sock_connect(connection, (host, int(port)))
        await loop.sock_sendall(connection, asked)
        yield


async def at_rest(daemon: Daemon) -> collections.Counter[str]:
    """What it has open when it does nothing: a jail may be made ahead, or a probe be under way."""
    seen, before = descriptors(daemon.pid), None
    async with asyncio.timeout(GRACE_S):
        while seen != before:
            await asyncio.sleep(0.1)
            before, seen = seen, descriptors(daemon.pid)
    return seen


def kept(daemon: Daemon, before: collections.Counter[str]) -> dict[str, object]:
    """What is more than it was; the connections of our own client come and go."""
    more = descriptors(daemon.pid) - before
    del more["socket"]
    return {
        "descriptors": dict(more),
        "jobs": os.listdir(daemon.data_root / "jobs"),
        "staging": os.listdir(daemon.data_root / "staging"),
        "jails": jail_groups(daemon.data_root),
    }


@pytest.mark.parametrize("case", CASES)
async def test_nothing_is_kept_for_a_client_that_has_left(runner: Daemon, case: str) -> None:
    asked, times, at_once = CASES[case]
    stored = await runner.request("PUT", "/session/files/kept", session=SESSION, data=b"kept")
    assert stored.status in (200, 201)
    before = await at_rest(runner)
    moments = itertools.chain.from_iterable(itertools.repeat(LEAVING_S, times))

    async def some() -> None:
        for after in moments:
            async with client(runner, asked):
                await asyncio.sleep(after)

    await asyncio.gather(*(some() for _ in range(at_once)))
    assert await settled(lambda: kept(runner, before), NOTHING) == NOTHING
    assert (await runner.file(SESSION, "kept")).body == b"kept"


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_nothing_is_kept_of_what_was_being_fetched_or_delivered(
    runner: Daemon, server: FileServer, method: str
) -> None:
    """They leave when the file server has seen so many of the transfers of their execution."""
    for number in range(FILES):
        server.put("s", f"{number}", b"bytes")
    inputs = [{"id": f"{n}", "storage_session_id": "s", "name": f"{n}"} for n in range(FILES)]
    makes = f"for n in range({FILES}): open(f'out{{n}}', 'w').write('x')"
    fetching = runs("python", "pass", *inputs, session=False)
    asked = fetching if method == "GET" else runs("python", makes, session=False)
    before = await at_rest(runner)
    for transfers in range(1, FILES - AT_ONCE, 3):
        server.seen.clear()
        async with client(runner, asked), asyncio.timeout(10):
            while len(server.requests(method)) < transfers:
                await asyncio.sleep(0)
    assert await settled(lambda: kept(runner, before), NOTHING) == NOTHING
