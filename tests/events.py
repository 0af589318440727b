"""A client of `text/event-stream`, for tests."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.harness import Daemon


@dataclass(frozen=True, slots=True)
class Event:
    """One event; a comment has the name ":"."""

    name: str
    data: Any
    at: float


class Stream:
    """The events of one response, as they come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def __aiter__(self) -> AsyncIterator[Event]:
        name = ""
        async for line in self.response.content:
            text = line.decode("utf-8").rstrip("\n")
            if text.startswith(":"):
                yield Event(":", text[1:].strip(), time.monotonic())
            elif text.startswith("event: "):
                name = text.removeprefix("event: ")
            elif text.startswith("data: "):
                data = json.loads(text.removeprefix("data: "))
                yield Event(name, data, time.monotonic())

    async def until(self, name: str) -> Event:
        """The next event of that name."""
        async for event in self:
            if event.name == name:
                return event
        raise AssertionError(f"the stream ended without {name}")

    async def rest(self) -> list[Event]:
        """All that is left, without the comments."""
        return [event async for event in self if event.name != ":"]


def body_of(code: str, language: str = "bash", **more: Any) -> dict[str, Any]:
    """The body of an execute."""
    return {"language": language, "files": [{"name": "main", "content": code}]} | more


@contextlib.asynccontextmanager
async def streamed(
    daemon: Daemon,
    code: str,
    *,
    session: str | None = None,
    headers: Mapping[str, str] | None = None,
    **body: Any,
) -> AsyncIterator[Stream]:
    """POST /execute for events; leaving early drops the connection."""
    sent = {"Accept": "text/event-stream", **(headers or {})}
    if session is not None:
        sent["X-Runtime-Session-Id"] = session
    async with daemon.client.post("/execute", json=body_of(code, **body), headers=sent) as response:
        yield Stream(response)
