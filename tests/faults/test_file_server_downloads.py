"""A file server that fails in every way it can while inputs are fetched: a typed answer each, one
bounded number of tries, and a workspace that is what it was.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fileserver import FileServer, Misdeed, respond
from tests.harness import Daemon, Reply

CAP = 256 << 10
TIMEOUT = 1.0
#: Tries of what is worth another one.
TRIES = 3


def status(number: int, extra: str = "") -> Misdeed:
    async def answer(writer: asyncio.StreamWriter, _: bytes) -> None:
        await respond(writer, number, extra=extra)

    return answer


async def reset_mid_body(writer: asyncio.StreamWriter, _: bytes) -> None:
    await respond(writer, 200, b"half", length=100)
    writer.transport.abort()


async def short_body(writer: asyncio.StreamWriter, _: bytes) -> None:
    await respond(writer, 200, b"half", length=100)


async def long_body(writer: asyncio.StreamWriter, _: bytes) -> None:
    await respond(writer, 200, b"twice as long", length=5)


async def endless_body(writer: asyncio.StreamWriter, _: bytes) -> None:
    writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
        await writer.drain()


async def too_large(writer: asyncio.StreamWriter, _: bytes) -> None:
    await respond(writer, 200, b"", length=CAP + 1)


async def silent(writer: asyncio.StreamWriter, _: bytes) -> None:
    await asyncio.sleep(10 * TIMEOUT)


async def stalls(writer: asyncio.StreamWriter, _: bytes) -> None:
    await respond(writer, 200, b"half", length=100)
    await asyncio.sleep(10 * TIMEOUT)


async def wrong_length(writer: asyncio.StreamWriter, _: bytes) -> None:
    writer.write(b"HTTP/1.1 200 X\r\nContent-Length: many\r\n\r\nbody")
    await writer.drain()


async def two_lengths(writer: asyncio.StreamWriter, _: bytes) -> None:
    writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 4\r\nContent-Length: 8\r\n\r\nbodybody")
    await writer.drain()


async def not_http(writer: asyncio.StreamWriter, _: bytes) -> None:
    writer.write(b"SSH-2.0-something\r\n\r\n")
    await writer.drain()


async def compressed(writer: asyncio.StreamWriter, _: bytes) -> None:
    await respond(writer, 200, b"\x1f\x8b", extra="Content-Encoding: gzip\r\n")


@dataclass(frozen=True)
class Case:
    misdeed: Misdeed
    reason: str
    tries: int
    retryable: bool = False


CASES = {
    "500": Case(status(500), "server_failed", TRIES, retryable=True),
    "503": Case(status(503), "server_failed", TRIES, retryable=True),
    "404": Case(status(404), "not_found", 1),
    "403": Case(status(403), "refused", 1),
    "reset": Case(reset_mid_body, "truncated", TRIES, retryable=True),
    "short": Case(short_body, "truncated", TRIES, retryable=True),
    "long": Case(long_body, "malformed", 1),
    "endless": Case(endless_body, "too_large", 1),
    "too-large": Case(too_large, "too_large", 1),
    "silent": Case(silent, "timed_out", 1, retryable=True),
    "stalls": Case(stalls, "timed_out", 1, retryable=True),
    "wrong-length": Case(wrong_length, "malformed", 1),
    "two-lengths": Case(two_lengths, "malformed", 1),
    "not-http": Case(not_http, "malformed", 1),
    "compressed": Case(compressed, "malformed", 1),
}


def sent(object_id: str, name: str = "in/put.csv") -> dict[str, Any]:
    return {"id": object_id, "storage_session_id": "s1", "name": name}


async def state_of(daemon: Daemon) -> list[dict[str, Any]]:
    listed = await daemon.get("/session/files?sha256=1", session="s")
    return listed.json["files"]


async def fails(daemon: Daemon, object_id: str) -> Reply:
    """A turn with a good input before and after the bad one."""
    before = await state_of(daemon)
    files = [sent("good", "good.csv"), sent(object_id), sent("good", "other.csv")]
    reply = await daemon.execute("open('ran','w').close()", session="s", files=files)
    assert await state_of(daemon) == before
    assert os.listdir(daemon.data_root / "staging") == []
    return reply


async def test_every_failure_has_its_answer_and_changes_nothing(
    start: Callable[..., Any],
) -> None:
    async with FileServer() as server, FileServer() as private:
        server.put("s1", "good", b"good")
        server.misdeeds = {name: case.misdeed for name, case in CASES.items()}
        elsewhere = f"Location: {private.url}/latest/meta-data\r\n"
        server.misdeeds["redirect"] = status(302, elsewhere)
        table = CASES | {"redirect": Case(status(302), "redirected", 1)}
        daemon = await start(
            RUNNER_FILE_SERVER_URL=server.url,
            RUNNER_FILE_SERVER_TIMEOUT=f"{TIMEOUT}s",
            RUNNER_FILE_MAX_BYTES=str(CAP),
        )
        await daemon.execute("open('kept','w').write('kept')", session="s")
        for name, case in table.items():
            server.seen.clear()
            reply = await fails(daemon, name)
            body = reply.json
            assert (reply.status, body["error"]) == (409, "input_unavailable"), name
            assert (body["reason"], body["field"]) == (case.reason, "in/put.csv"), name
            assert (body["retryable"], body["recycle"]) == (case.retryable, False), name
            tries = [each for each in server.seen if each.path.endswith(f"/{name}")]
            assert len(tries) == case.tries, name
        assert private.seen == []
        ran = await daemon.execute("print(open('kept').read())", session="s")
        assert ran.json["run"]["stdout"] == "kept\n"


async def test_a_server_that_recovers_is_asked_again(start: Callable[..., Any]) -> None:
    async with FileServer() as server:
        server.put("s1", "flaky", b"bytes")
        left = [status(500), reset_mid_body]

        async def flaky(writer: asyncio.StreamWriter, body: bytes) -> None:
            await (left.pop()(writer, body) if left else respond(writer, 200, body))

        server.misdeeds["flaky"] = flaky
        daemon = await start(RUNNER_FILE_SERVER_URL=server.url)
        reply = await daemon.execute(
            "print(open('in/put.csv').read())", session="s", files=[sent("flaky")]
        )
        assert reply.json["run"]["stdout"] == "bytes\n"


async def test_nobody_listens(start: Callable[..., Any]) -> None:
    # Port 1 is nobody's.
    daemon = await start(RUNNER_FILE_SERVER_URL="http://127.0.0.1:1")
    await daemon.execute("open('kept','w').write('kept')", session="s")
    reply = await fails(daemon, "any")
    assert (reply.status, reply.json["reason"]) == (409, "unreachable")
    assert reply.json["retryable"] is True


async def test_a_client_that_leaves_does_not_wait_for_the_server(
    start: Callable[..., Any],
) -> None:
    async with FileServer() as server:
        server.misdeeds["silent"] = silent
        daemon = await start(RUNNER_FILE_SERVER_URL=server.url)
        await daemon.execute("open('kept','w').write('kept')", session="s")
        turn = asyncio.create_task(daemon.execute("1", session="s", files=[sent("silent")]))
        async with asyncio.timeout(5):
            while not server.requests("GET"):
                await asyncio.sleep(0.01)
            turn.cancel()
            # The session is free at once, long before the server's time is up.
            assert (await daemon.execute("1", session="s")).status == 200
        assert await daemon.paths("s") == ["kept", "main"]


NAMES = {
    "newline": "a\nX-Injected: 1\r\n.csv",
    "right-to-left override": "in\u202egpj.exe",
    "255 bytes of UTF-8": "ä" * 127 + "b",
    "quotes and percent": "100%25 \"'\\.txt",
}


async def test_odd_names_go_in_and_out_as_they_are(start: Callable[..., Any]) -> None:
    async with FileServer() as server:
        server.put("s1", "good", b"good")
        daemon = await start(RUNNER_FILE_SERVER_URL=server.url)
        code = """
import os
for name in sorted(os.listdir('in')):
    open('in/' + name, 'a').write(' edited')
"""
        files = [sent("good", f"in/{name}") for name in NAMES.values()]
        files = [each for each in files if len(each["name"].encode()) <= 256]
        reply = await daemon.execute(code, session="s", files=files)
        wanted = {each["name"] for each in files}
        assert {row["name"] for row in reply.json["files"]} == wanted
        assert server.uploads() == dict.fromkeys(wanted, b"good edited")
        assert not any("x-injected" in each.headers for each in server.seen)
        assert set(await daemon.paths("s")) == wanted | {"main"}


async def test_names_that_are_no_names_change_nothing(daemon: Daemon) -> None:
    await daemon.execute("open('kept','w').write('kept')", session="s")
    before = await state_of(daemon)
    for name in ("ä" * 128, "in/" + "ä" * 127, "a\u0000b", "in//x", "../x"):
        reply = await daemon.execute("1", session="s", files=[sent("good", name)])
        # 257 bytes in two components: each fits the file system, the name does not fit the wire.
        assert (reply.status, reply.json["error"]) == (400, "invalid_path"), name
        assert await state_of(daemon) == before
