"""One wide JSON event per request, and no secret and no content of anybody's in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")


def requests(daemon: Daemon) -> list[dict[str, Any]]:
    return [event for event in daemon.log if event["event"] == "request"]


async def logged(daemon: Daemon, count: int) -> list[dict[str, Any]]:
    """The events of the last requests, once there are `count`; the log comes over a pipe."""
    async with asyncio.timeout(5):
        while len(requests(daemon)) < count:
            await asyncio.sleep(0.01)
    return requests(daemon)


async def mark(daemon: Daemon) -> int:
    """How many there are, once all that came before are in."""
    before = sum(event["route"] == "/metrics" for event in requests(daemon))
    await daemon.get("/metrics")
    async with asyncio.timeout(5):
        while sum(event["route"] == "/metrics" for event in requests(daemon)) == before:
            await asyncio.sleep(0.01)
    return len(requests(daemon))


async def test_each_request_is_one_event_with_what_became_of_it(runner: Daemon) -> None:
    before = await mark(runner)
    await runner.execute("open('x', 'w').write('x')", session=SESSION)
    await runner.execute("pass", session="another")
    await runner.file(SESSION, "nothing")
    await runner.get("/nowhere")
    await runner.checkpoint(SESSION)
    events = (await logged(runner, before + 5))[before:]
    assert [(event["route"], event["status"]) for event in events] == [
        ("/execute", 200),
        ("/execute", 409),
        ("/session/files/{path}", 404),
        ("none", 404),
        ("/session/checkpoint", 200),
    ]
    executed, stranger, *_, checkpoint = events
    assert (executed["outcome"], executed["language"], executed["files"]) == ("exited", "python", 1)
    assert executed["wall_ms"] > 0 and executed["ms"] >= executed["wall_ms"]
    assert (stranger["error"], stranger["reason"]) == ("session_workspace_dirty", "other_session")
    assert checkpoint["bytes"] > 0 and checkpoint["entries"] >= 3
    assert len({event["request_id"] for event in events}) == 5
    for event in events:
        assert event["time"].endswith("Z") and event["level"] == "info"
        assert event["incarnation"].startswith("inc_") and event["state"] == "ready"


async def test_a_client_that_leaves_is_an_event_too(runner: Daemon) -> None:
    before = await mark(runner)
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.4):
            await runner.execute("import time; time.sleep(20)", session=SESSION)
    events = (await logged(runner, before + 1))[before:]
    assert [(event["route"], event["status"]) for event in events] == [("/execute", 499)]


async def test_nothing_that_is_secret_or_somebodys_is_logged(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch(RUNNER_TOKEN="token-secret", RUNNER_SIDECAR_KEY="S" * 43)
    headers = {"Authorization": "Bearer token-secret", "X-Sidecar-Key": "K" * 43}
    secrets = {
        "content": "print('printed-secret'); raise ValueError('raised-secret')",
        "files": [{"name": "file-name-secret", "content": "content-secret"}],
        "env_vars": {"ENV": "env-secret"},
        "args": ["arg-secret"],
        "stdin": "stdin-secret",
    }
    content = secrets.pop("content")
    await daemon.execute(content, session=SESSION, headers=headers, **secrets)
    archive = await daemon.checkpoint(SESSION, headers=headers)
    await daemon.restore(SESSION, archive.body, headers=headers)
    await daemon.restore(SESSION, archive.body[:-9], headers=headers)
    await daemon.request("POST", "/execute", headers=headers, json={"language": "lang-secret"})
    await daemon.get("/runtimes", headers={"Authorization": "Bearer wrong-secret"})
    await daemon.get("/session/files/path-secret?query-secret=1", session=SESSION, headers=headers)
    await daemon.stop()
    text = json.dumps(daemon.log)
    assert len(requests(daemon)) >= 7
    for secret in ("-secret", "S" * 43, "K" * 43, "printed", "Traceback"):
        assert secret not in text, secret


async def test_what_is_no_http_is_a_line_without_its_bytes(runner: Daemon) -> None:
    host, port = runner.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer raw-secret\x00\r\n\r\n")
    assert (await reader.read()).split()[1] == b"400"
    writer.close()
    await mark(runner)
    odd = [event for event in runner.log if event["logger"] == "aiohttp.server"]
    assert [(event["level"], event["event"]) for event in odd] == [
        ("warning", "a request was not HTTP")
    ]
    assert "raw-secret" not in json.dumps(runner.log)


async def test_an_error_never_shows_a_path_of_the_host(runner: Daemon) -> None:
    replies = [
        await runner.file(SESSION, "nothing"),
        await runner.restore(SESSION, b"x"),
        await runner.execute("x", session=SESSION, language="cobol"),
        await runner.get("/session/files/x%00y", session=SESSION),
    ]
    for reply in replies:
        assert reply.status >= 400
        assert str(runner.data_root).encode() not in reply.body and b"Errno" not in reply.body


async def test_an_unknown_setting_of_ours_is_warned_about(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch(RUNNER_MEMROY_LIMIT="1MiB")
    warned = [event for event in daemon.log if event["level"] == "warning"]
    assert [event.get("variable") for event in warned] == ["RUNNER_MEMROY_LIMIT"]
