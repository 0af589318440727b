"""A file server of the kind a control plane runs, on a real socket, that can misbehave at will."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

Misdeed = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Stored:
    body: bytes
    read_only: bool = False


@dataclass(slots=True)
class FileServer:
    """Objects by (storage session, id). Speaks just enough HTTP, so that it can get it wrong."""

    objects: dict[tuple[str, str], Stored] = field(default_factory=dict)
    #: Storage session → what a listing of it says.
    listings: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    #: Object id → how its GET is answered instead.
    misdeeds: dict[str, Misdeed] = field(default_factory=dict)
    #: Statuses that the next PUTs are answered with, before one is taken.
    refusals: list[int] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    #: Seconds that each PUT takes.
    put_delay: float = 0.0
    url: str = ""
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> FileServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    def put(self, session: str, name: str, body: bytes, *, read_only: bool = False) -> None:
        self.objects[(session, name)] = Stored(body, read_only)

    def requests(self, method: str) -> list[Seen]:
        return [each for each in self.seen if each.method == method]

    def uploads(self) -> dict[str, bytes]:
        """Original name → bytes of what was stored by PUT."""
        return {
            unquote(each.headers["x-original-filename"]): each.body for each in self.requests("PUT")
        }

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._answer(reader, writer)
        with contextlib.suppress(ConnectionError):
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.seen.append(Seen(method, path, headers, body))
            session, object_id = (unquote(part) for part in [*path.split("/"), ""][2:5:2])
            if method == "PUT":
                await self._take(writer, session, object_id, body)
            else:
                await self._give(writer, session, object_id)
        finally:
            self.at_once -= 1

    async def _take(
        self, writer: asyncio.StreamWriter, session: str, object_id: str, body: bytes
    ) -> None:
        await asyncio.sleep(self.put_delay)
        if self.refusals:
            await respond(writer, self.refusals.pop(0))
            return
        self.put(session, object_id, body)
        await respond(writer, 200, b'{"stored":true}')

    async def _give(self, writer: asyncio.StreamWriter, session: str, object_id: str) -> None:
        stored = self.objects.get((session, object_id))
        if not object_id:
            await respond(writer, 200, json.dumps(self.listings.get(session, [])).encode())
            return
        if object_id in self.misdeeds:
            await self.misdeeds[object_id](writer, stored.body if stored else b"")
        elif stored is None:
            await respond(writer, 404)
        else:
            extra = "X-Read-Only: true\r\n" if stored.read_only else ""
            await respond(writer, 200, stored.body, extra=extra)


async def respond(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes = b"",
    *,
    length: int | None = None,
    extra: str = "",
) -> None:
    """A response whose Content-Length may be a lie."""
    said = len(body) if length is None else length
    writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {said}\r\n{extra}\r\n".encode() + body)
    await writer.drain()
