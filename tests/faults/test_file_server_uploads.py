"""A file server that fails while outputs are uploaded: named, offered again, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from runner.fileserver.client import FileServer as Client
from runner.fileserver.client import ObjectName
from runner.fileserver.retry import Failure, TransferFailed
from runner.workspace.fingerprint import ChangedWhileReadError
from tests.fileserver import FileServer

ONE = "open('out.csv','w').write('1')"


def skipped(reply: Any) -> list[tuple[str, str]]:
    assert reply.status == 200
    return [(each["name"], each["reason"]) for each in reply.json["skipped"]]


REFUSALS: tuple[tuple[list[int], str | None, int], ...] = (
    ([500, 502], None, 3),
    ([500] * 3, "upload_server_failed", 3),
    ([404], "upload_not_found", 1),
    ([413], "upload_refused", 1),
    ([307], "upload_redirected", 1),
)


async def test_what_did_not_get_there_is_named_and_offered_again(
    start: Callable[..., Any],
) -> None:
    async with FileServer() as server:
        daemon = await start(RUNNER_FILE_SERVER_URL=server.url)
        for number, (statuses, reason, tries) in enumerate(REFUSALS):
            server.seen.clear()
            server.refusals = list(statuses)
            name = f"out{number}.csv"
            reply = await daemon.execute(f"open('{name}','w').write('1')", session="s")
            assert skipped(reply) == ([(name, reason)] if reason else [])
            assert len(server.requests("PUT")) == tries
            # A try has the name of the one before it: the server never has the file twice.
            assert len({each.path for each in server.requests("PUT")}) == 1
            again = await daemon.execute("1", session="s")
            assert [row["name"] for row in again.json["files"]] == ([name] if reason else [])
            if reason:
                assert reply.json["skipped"][0]["href"] == f"/session/files/{name}"


async def test_a_slow_server_costs_its_bound_and_no_more(start: Callable[..., Any]) -> None:
    async with FileServer() as server:
        server.put_delay = 30
        daemon = await start(RUNNER_FILE_SERVER_URL=server.url, RUNNER_FILE_SERVER_TIMEOUT="500ms")
        async with asyncio.timeout(10):
            reply = await daemon.execute(ONE, session="s")
        assert skipped(reply) == [("out.csv", "upload_timed_out")]


async def test_eight_at_a_time(start: Callable[..., Any]) -> None:
    async with FileServer() as server:
        server.put_delay = 0.1
        daemon = await start(RUNNER_FILE_SERVER_URL=server.url)
        reply = await daemon.execute("for n in range(20): open(f'f{n:02}','w').write('x')")
        assert len(reply.json["files"]) == 20
        assert server.most_at_once == 8


async def test_headers_tell_size_name_and_type(start: Callable[..., Any]) -> None:
    async with FileServer() as server:
        daemon = await start(RUNNER_FILE_SERVER_URL=server.url)
        code = "for n in ('a.csv','b.PNG','c','d.json'): open(n,'w').write('1234')"
        await daemon.execute(code)
        types = {
            each.headers["x-original-filename"]: each.headers["content-type"]
            for each in server.requests("PUT")
        }
        assert types == {
            "a.csv": "text/csv",
            "b.PNG": "image/png",
            "c": "application/octet-stream",
            "d.json": "application/json",
        }
        assert {each.headers["content-length"] for each in server.requests("PUT")} == {"4"}


async def test_a_body_that_changes_is_never_stored() -> None:
    """The last bytes are held back until all of them are known to be right."""

    async def changed() -> AsyncIterator[bytes]:
        yield b"first half, "
        raise ChangedWhileReadError

    async with FileServer() as server:
        client = Client(server.url, timeout=5)
        with pytest.raises(ChangedWhileReadError):
            await client.upload(ObjectName("s", "o"), changed, size=100, filename="f")
        await client.aclose()
        assert server.objects == {} and server.requests("PUT") == []


async def test_a_connection_that_is_never_made_is_given_up(tmp_path: Path) -> None:
    """A full backlog: the kernel takes no more connections and says nothing."""
    import socket

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        queued = [socket.socket() for _ in range(4)]
        for each in queued:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        client = Client(f"http://127.0.0.1:{port}", timeout=0.3)
        try:
            async with asyncio.timeout(5):
                with pytest.raises(TransferFailed) as failed:
                    await client.upload(ObjectName("s", "o"), _nothing, size=0, filename="f")
            assert failed.value.failure is Failure.TIMED_OUT
        finally:
            await client.aclose()
            for each in queued:
                each.close()


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
