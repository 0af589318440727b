"""Clients that send or read too slowly, stop, or reset: told, bounded, and nothing is held."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import socket
import struct
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conftest import SESSION, own_daemon
from tests.harness import Daemon
from tests.leftovers import descriptors, settled
from tests.pushing import Item, batch

pytestmark = pytest.mark.asyncio(loop_scope="module")

IDLE_S, TOTAL_S = 0.5, 1.5
#: What a busy machine adds.
GRACE_S = 5.0
KEEP = "open('kept', 'w').write('x'); import os; open('noise', 'wb').write(os.urandom(12 << 20))"
BODY_BYTES = 100_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impatient() -> AsyncIterator[Daemon]:
    environ = {
        "RUNNER_IDLE_TIMEOUT": f"{IDLE_S * 1000:.0f}ms",
        "RUNNER_TRANSFER_TIMEOUT": f"{TOTAL_S * 1000:.0f}ms",
        "RUNNER_LOCK_WAIT": "10s",
    }
    async with own_daemon(**environ) as daemon:
        yield daemon


async def connect(daemon: Daemon, *, receive_bytes: int = 0) -> socket.socket:
    """A connection of its own, whose receive buffer is small."""
    host, port = daemon.url.removeprefix("http://").split(":")
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
    return connection


async def to_its_end(connection: socket.socket) -> bytes:
    """What still comes until the daemon closes."""
    taken = b""
    with contextlib.suppress(ConnectionError):
        while chunk := await asyncio.get_running_loop().sock_recv(connection, 1 << 16):
            taken += chunk
    return taken


async def send_slowly(connection: socket.socket, body: bytes, way: str) -> None:
    """A part of the body, then the way in which no more of it comes."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, body[:1000])
    if way == "resets":
        await asyncio.sleep(0.1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    elif way == "sends a byte at a time":
        with contextlib.suppress(ConnectionError):
            for at in range(1000, len(body)):
                await loop.sock_sendall(connection, body[at : at + 1])
                await asyncio.sleep(0.05)


async def body_of(daemon: Daemon, route: str) -> bytes:
    if route == "restore":
        return (await daemon.checkpoint(SESSION)).body
    if route == "execute":
        return b'{"language": "python", "version": "*", "files": [{"content": "' + b"#" * BODY_BYTES
    random = os.urandom(BODY_BYTES)
    return batch(Item("store", "slow", random)) if route == "push" else random


ROUTES = {
    "restore": ("POST /session/restore", "application/x-gtar", 422),
    "put": ("PUT /session/files/put", "application/octet-stream", 400),
    "push": ("POST /session/inputs", "application/x-gtar", 400),
    "execute": ("POST /execute", "application/json", 400),
}


@pytest.mark.parametrize(
    ("route", "way"),
    [
        ("restore", "stops"),
        ("restore", "sends a byte at a time"),
        ("restore", "resets"),
        ("put", "stops"),
        ("put", "resets"),
        ("push", "sends a byte at a time"),
        ("execute", "sends a byte at a time"),
    ],
)
async def test_a_body_that_does_not_come_holds_nothing_up(
    impatient: Daemon, route: str, way: str
) -> None:
    daemon = impatient
    kept = await daemon.execute(KEEP, session=SESSION)
    assert kept.json["run"]["code"] == 0
    body = await body_of(daemon, route)
    before = descriptors(daemon.pid)
    line, media_type, status = ROUTES[route]
    connection = await connect(daemon)
    head = (
        f"{line} HTTP/1.1\r\nHost: x\r\nX-Runtime-Session-Id: {SESSION}\r\n"
        f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    await asyncio.get_running_loop().sock_sendall(connection, head.encode())
    began = time.monotonic()
    sending = asyncio.create_task(send_slowly(connection, body, way))
    if way != "resets":
        answer = await asyncio.wait_for(_answer(connection), TOTAL_S + GRACE_S)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
        assert b"stopped coming" in answer and b'"reason": "stalled"' in answer, answer
        assert (time.monotonic() - began > TOTAL_S * 0.9) is (way == "sends a byte at a time")
    await asyncio.wait({sending}) if way == "resets" else sending.cancel()
    connection.close()
    # The session is free at once, and what it is now is what the route promises.
    again = await daemon.execute("import os; print(os.path.exists('kept'))", session=SESSION)
    assert again.json["run"]["stdout"] == f"{route != 'restore'}\n"
    assert await settled(lambda: os.listdir(daemon.data_root / "staging"), []) == []
    del before["socket"]
    assert await settled(lambda: _more(daemon, before), {}) == {}


def _more(daemon: Daemon, before: collections.Counter[str]) -> dict[str, int]:
    more = descriptors(daemon.pid) - before
    del more["socket"]
    return dict(more)


async def _answer(connection: socket.socket) -> bytes:
    """The head and the body of the answer, as far as one read gives them."""
    loop = asyncio.get_running_loop()
    taken = b""
    while b"\r\n\r\n" not in taken or not taken.rstrip().endswith(b"}"):
        chunk = await loop.sock_recv(connection, 1 << 16)
        if not chunk:
            break
        taken += chunk
    return taken


@pytest.mark.parametrize("way", ["stops", "reads a little at a time", "resets"])
@pytest.mark.parametrize("what", ["/session/checkpoint", "/session/files/noise"])
async def test_a_client_that_does_not_read_holds_nothing_up(
    impatient: Daemon, what: str, way: str
) -> None:
    daemon = impatient
    assert (await daemon.execute(KEEP, session=SESSION)).json["run"]["code"] == 0
    before = descriptors(daemon.pid)
    loop = asyncio.get_running_loop()
    connection = await connect(daemon, receive_bytes=4096)
    head = f"GET {what} HTTP/1.1\r\nHost: x\r\nX-Runtime-Session-Id: {SESSION}\r\n\r\n"
    await loop.sock_sendall(connection, head.encode())
    began = time.monotonic()
    assert (await loop.sock_recv(connection, 100)).startswith(b"HTTP/1.1 200")
    if way == "resets":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    reading = asyncio.create_task(
        _read_a_little(connection) if "little" in way else asyncio.sleep(0)
    )
    again = await daemon.execute("print('after')", session=SESSION)
    assert again.json["run"]["stdout"] == "after\n"
    assert time.monotonic() - began < TOTAL_S + GRACE_S
    del before["socket"]
    await asyncio.sleep(TOTAL_S - min(TOTAL_S, time.monotonic() - began))
    assert await settled(lambda: _more(daemon, before), {}) == {}
    reading.cancel()
    if way != "resets":
        # What had come is not the whole, and is not ended as if it were.
        came = await asyncio.wait_for(to_its_end(connection), GRACE_S)
        assert len(came) < 12 << 20 and not came.endswith(b"0\r\n\r\n")
        connection.close()


async def _read_a_little(connection: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while await asyncio.get_running_loop().sock_recv(connection, 512):
            await asyncio.sleep(0.02)
