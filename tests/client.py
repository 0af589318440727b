"""A client of a runner, wherever it runs: what its users send, and what they get."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import aiohttp

START_TIMEOUT = 30.0
REQUEST_TIMEOUT = 120


@dataclass(frozen=True, slots=True)
class Reply:
    """One response, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def incarnation(self) -> str | None:
        return self.headers.get("X-Incarnation-Id")


class Client:
    """Speaks to the runner at `url`, once it is open."""

    #: What every reply has to be; the tests set it.
    check: ClassVar[Callable[[str, str, Reply], None] | None] = None

    def __init__(self) -> None:
        self.url = ""
        self._client: aiohttp.ClientSession | None = None

    def open(self, url: str, *, token: str | None = None) -> None:
        """From now on it speaks to `url`."""
        self.url = url
        self._client = aiohttp.ClientSession(
            url,
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT),
            auto_decompress=False,
            headers={"Authorization": f"Bearer {token}"} if token else None,
        )

    async def close(self) -> None:
        """Gives its connections back."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @property
    def client(self) -> aiohttp.ClientSession:
        assert self._client is not None
        return self._client

    async def wait_ready(self) -> None:
        async with asyncio.timeout(START_TIMEOUT):
            while (await self.get("/health")).status != 200:
                await asyncio.sleep(0.02)

    async def request(
        self,
        method: str,
        path: str,
        *,
        session: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Reply:
        sent = dict(headers or {})
        if session is not None:
            sent["X-Runtime-Session-Id"] = session
        async with self.client.request(method, path, headers=sent, **more) as response:
            reply = Reply(response.status, response.headers.copy(), await response.read())
        if self.check is not None:
            self.check(method, str(path), reply)
        return reply

    async def get(self, path: str, **more: Any) -> Reply:
        return await self.request("GET", path, **more)

    async def execute(
        self,
        code: str,
        *,
        language: str = "python",
        session: str | None = None,
        headers: Mapping[str, str] | None = None,
        name: str = "main",
        files: list[dict[str, Any]] | None = None,
        **body: Any,
    ) -> Reply:
        """POST /execute with `code` as the first file."""
        sent = {
            "language": language,
            "version": "*",
            "files": [{"name": name, "content": code}, *(files or [])],
        } | body
        return await self.request("POST", "/execute", session=session, headers=headers, json=sent)

    async def checkpoint(self, session: str, **more: Any) -> Reply:
        return await self.get("/session/checkpoint", session=session, **more)

    async def restore(
        self,
        session: str,
        archive: Any,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Reply:
        return await self.request(
            "POST",
            "/session/restore",
            session=session,
            headers={"Content-Type": "application/x-gtar", **(headers or {})},
            data=archive,
            **more,
        )

    async def file(self, session: str, path: str, **more: Any) -> Reply:
        return await self.get(f"/session/files/{path}", session=session, **more)

    async def paths(self, session: str) -> list[str]:
        """The names of the session's files."""
        listed = await self.get("/session/files", session=session)
        return [each["path"] for each in listed.json["files"]]
