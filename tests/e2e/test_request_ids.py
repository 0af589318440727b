"""A response is found in the log by its `X-Request-Id`, however it was answered."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from runner.app import COMPATIBLE_PREFIX, ROUTES, Route
from tests.conftest import SESSION
from tests.events import streamed
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "X-Request-Id"
ENDS_THE_SESSION = "/terminate"


async def logged(daemon: Daemon, request_id: str) -> dict[str, Any]:
    """The wide event of that id; the log comes over a pipe."""
    async with asyncio.timeout(5):
        while True:
            found = [event for event in daemon.log if event.get("request_id") == request_id]
            if found:
                (event,) = found
                return event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("prefix", ["", COMPATIBLE_PREFIX])
@pytest.mark.parametrize(
    "row",
    [row for row in ROUTES if not row.path.endswith(ENDS_THE_SESSION)],
    ids=lambda row: f"{row.method} {row.path}",
)
async def test_of_any_route(runner: Daemon, row: Route, prefix: str) -> None:
    path = prefix + re.sub(r"\{.+?\}", "nothing", row.path)
    replies = [
        await runner.request(row.method, path),
        await runner.request(row.method, path, session=SESSION),
        await runner.request(row.method, path, session="another"),
    ]
    assert len({reply.headers[NAME] for reply in replies}) == 3
    for reply in replies:
        event = await logged(runner, reply.headers[NAME])
        assert event["route"] == prefix + row.path.replace(":.+}", "}")
        assert (event["method"], event["status"]) == (row.method, reply.status)


async def test_of_what_is_streamed_and_of_what_has_not_changed(runner: Daemon) -> None:
    await runner.execute("open('f', 'w').write('x' * 99)", session=SESSION)
    archive = await runner.checkpoint(SESSION)
    same = {"If-None-Match": archive.headers["ETag"]}
    replies = {
        "archive": archive,
        "unchanged": await runner.checkpoint(SESSION, headers=same),
        "file": await runner.file(SESSION, "f"),
        "range": await runner.file(SESSION, "f", headers={"Range": "bytes=1-2"}),
    }
    assert [reply.status for reply in replies.values()] == [200, 304, 200, 206]
    for reply in replies.values():
        assert (await logged(runner, reply.headers[NAME]))["status"] == reply.status
    async with streamed(runner, "echo x", session=SESSION) as stream:
        await stream.rest()
    assert (await logged(runner, stream.response.headers[NAME]))["route"] == "/execute"


async def test_of_an_upgrade(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    headers = {
        "X-Runtime-Session-Id": SESSION,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    async with daemon.client.get("/session/terminal", headers=headers) as response:
        assert response.status == 101
        response.close()
    assert (await logged(daemon, response.headers[NAME]))["status"] in (101, 499)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("PATCH", "/execute", 404), ("GET", "/session/files/%00", 400)],
)
async def test_of_what_is_refused(runner: Daemon, method: str, path: str, status: int) -> None:
    reply = await runner.request(method, path, session=SESSION)
    event = await logged(runner, reply.headers[NAME])
    assert (reply.status, event["status"], event["error"]) == (status, status, reply.json["error"])


async def test_an_id_of_the_clients_is_not_taken_over(runner: Daemon) -> None:
    reply = await runner.get("/runtimes", headers={NAME: "chosen-by-a-client"})
    assert re.fullmatch(r"[\w-]{21}", reply.headers[NAME])
    await logged(runner, reply.headers[NAME])
    assert "chosen-by-a-client" not in json.dumps(runner.log)
