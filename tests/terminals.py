"""A client of the terminal, as a browser or a control plane would be one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from tests.harness import Daemon
from tests.leftovers import TEST_UID, processes_of

PATIENCE_S = 10.0
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07")


class Shell:
    """One connection. `offset` is that of the next byte; `seen` is what came, from `first` on."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws
        self.ready: dict[str, Any] = {}
        self.frames: list[dict[str, Any]] = []
        self.first = self.offset = 0
        self.seen = b""

    @property
    def id(self) -> str:
        return self.ready["terminal"]

    @property
    def screen(self) -> str:
        """What came, without escape sequences."""
        return _ESCAPES.sub(b"", self.seen).decode("utf-8", "replace")

    async def take(self) -> bool:
        """Takes one frame; False when the connection is closed."""
        message = await self.ws.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            self.seen += message.data
            self.offset += len(message.data)
        elif message.type is aiohttp.WSMsgType.TEXT:
            self.frames.append(json.loads(message.data))
        else:
            return False
        return True

    async def type(self, text: str) -> None:
        await self.ws.send_bytes(text.encode())

    async def until(self, wanted: str) -> str:
        """What came, once it contains `wanted`."""
        async with asyncio.timeout(PATIENCE_S):
            while wanted not in self.screen:
                assert await self.take(), (self.screen, self.frames, self.ws.close_code)
        return self.screen

    async def run(self, command: str) -> str:
        """Types a command; what it printed."""
        mark = secrets.token_hex(4)
        # The echo of what is typed contains neither mark.
        await self.type(f'echo be""gin-{mark}; {command}; echo e""nd-{mark}\r')
        screen = await self.until(f"end-{mark}")
        printed = screen.partition(f"begin-{mark}\r\n")[2]
        return printed.partition(f"end-{mark}")[0].replace("\r\n", "\n")

    async def hang_up(self) -> None:
        """Ends the shell."""
        await self.ws.send_str('{"type": "hangup"}')
        await self.closed()

    async def closed(self) -> int | None:
        """The close code, once the server has closed."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.take():
                pass
        return self.ws.close_code

    def frame(self, kind: str) -> dict[str, Any]:
        """The one frame of a kind that came."""
        found = [frame for frame in self.frames if frame["type"] == kind]
        assert len(found) == 1, self.frames
        return found[0]


async def connect(
    daemon: Daemon,
    session: str | None,
    *,
    headers: Mapping[str, str] | None = None,
    **query: Any,
) -> Shell:
    """Attaches, and takes the `ready` frame. A refusal is an `aiohttp.WSServerHandshakeError`."""
    sent = dict(headers or {})
    if session is not None:
        sent["X-Runtime-Session-Id"] = session
    ws = await daemon.client.ws_connect(
        "/session/terminal", headers=sent, params=query, max_msg_size=0
    )
    shell = Shell(ws)
    async with asyncio.timeout(PATIENCE_S):
        while not shell.frames:
            assert await shell.take(), ws.close_code
    shell.ready = shell.frame("ready")
    shell.first = shell.offset = shell.ready["offset"]
    return shell


@contextlib.asynccontextmanager
async def attached(daemon: Daemon, session: str | None, **more: Any) -> AsyncIterator[Shell]:
    """`connect`, and the shell is ended with the block."""
    shell = await connect(daemon, session, **more)
    try:
        yield shell
    finally:
        if not shell.ws.closed:
            await shell.hang_up()


async def refused(daemon: Daemon, session: str | None, **more: Any) -> tuple[int, dict[str, Any]]:
    """Status and error body of an attach that is refused before the upgrade."""
    headers = dict(more.pop("headers", {}))
    if session is not None:
        headers["X-Runtime-Session-Id"] = session
    # A browser's handshake, by hand: aiohttp's client does not show the body of a refusal.
    headers |= {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    reply = await daemon.get("/session/terminal", headers=headers, params=more)
    return reply.status, reply.json


def cut(shell: Shell) -> None:
    """The connection breaks, without a word."""
    transport = shell.ws._conn.transport  # type: ignore[union-attr]
    assert transport is not None
    transport.abort()


def shells() -> list[str]:
    """The processes of terminals and of what was started in them; the daemon's own probe, which
    may be running any time, starts neither."""
    return [each for each in processes_of(TEST_UID) if "bash\0-l" in each or "sleep\x0060" in each]
