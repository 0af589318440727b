"""Live events: order, promptness, whole characters, a pulse, and a reader that sets the pace."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.events import Event, body_of, streamed
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT_S = 0.050


def joined(events: list[Event], name: str, stage: str = "run") -> str:
    return "".join(e.data["data"] for e in events if e.name == name and e.data["stage"] == stage)


async def test_started_comes_first_and_the_same_result_as_without_streaming_last(
    runner: Daemon,
) -> None:
    code = "echo out; sleep 0.1; echo err >&2; sleep 0.1; echo out again; exit 3"
    async with streamed(runner, code) as stream:
        assert stream.response.status == 200
        events = await stream.rest()
    assert [event.name for event in events] == ["started", "stdout", "stderr", "stdout", "result"]
    assert events[0].data == {"stage": "run", "id": stream.response.headers["X-Execution-Id"]}
    result = events[-1].data
    plain = (await runner.execute(code, language="bash")).json
    assert result.keys() == plain.keys() and result["run"].keys() == plain["run"].keys()
    for name in ("stdout", "stderr", "output", "code", "status", "streams", "limits"):
        assert result["run"][name] == plain["run"][name]
    assert result["run"]["output"] == "out\nerr\nout again\n"
    assert joined(events, "stdout") == result["run"]["stdout"]
    assert joined(events, "stderr") == result["run"]["stderr"]


async def test_no_proxy_is_to_hold_events_back(runner: Daemon) -> None:
    async with streamed(runner, "true") as stream:
        head = stream.response.headers
    assert head["Content-Type"].startswith("text/event-stream")
    assert head["Cache-Control"] == "no-store" and head["X-Accel-Buffering"] == "no"


async def test_only_an_accept_that_names_events_gets_events(runner: Daemon) -> None:
    for accept in ("*/*", "application/json", "text/*"):
        reply = await runner.execute("true", language="bash", headers={"Accept": accept})
        assert reply.json["run"]["code"] == 0
    async with streamed(
        runner, "true", headers={"Accept": "application/json;q=0.5, text/event-stream"}
    ) as stream:
        assert (await stream.rest())[-1].name == "result"


async def test_what_is_printed_arrives_at_once(runner: Daemon) -> None:
    # The jail has the same monotonic clock.
    code = """
import time
for _ in range(15):
    print(time.monotonic(), flush=True)
    time.sleep(0.03)
"""
    async with streamed(runner, code, language="python") as stream:
        events = [event for event in await stream.rest() if event.name == "stdout"]
    assert len(events) >= 10
    assert statistics.median(e.at - float(e.data["data"].split()[0]) for e in events) < PROMPT_S


async def test_a_character_written_byte_by_byte_arrives_whole(runner: Daemon) -> None:
    code = """
import sys, time
for byte in "a€😀".encode() + b"\\xff!":
    sys.stdout.buffer.write(bytes([byte])); sys.stdout.buffer.flush(); time.sleep(0.01)
"""
    async with streamed(runner, code, language="python") as stream:
        events = await stream.rest()
    texts = [event.data["data"] for event in events if event.name == "stdout"]
    assert "".join(texts) == "a€😀\N{REPLACEMENT CHARACTER}!" == events[-1].data["run"]["stdout"]
    # In pieces, of which none cut a character: the joined text would have more replacements. How
    # many pieces there are is up to the machine's load.
    assert len(texts) > 1


async def test_both_stages_of_a_compiled_language_are_told_apart(runner: Daemon) -> None:
    code = '#warning from the compiler\n#include <stdio.h>\nint main(void){puts("hello");}'
    async with streamed(runner, code, language="c", files=[{"name": "a.c", "content": code}]) as s:
        events = await s.rest()
    started = [event.data["stage"] for event in events if event.name == "started"]
    assert started == ["compile", "run"]
    assert "from the compiler" in joined(events, "stderr", "compile")
    assert joined(events, "stdout", "run") == "hello\n"
    assert events[-1].data["run"]["output"] == "hello\n"


async def test_what_is_cut_is_counted_and_hashed_all_the_same(runner: Daemon) -> None:
    reply = await runner.execute("head -c 3000000 /dev/zero >&2; echo x", language="bash")
    streams = reply.json["run"]["streams"]
    assert streams["stderr"] == {
        "bytes_total": 3_000_000,
        "bytes_kept": 1 << 20,
        "sha256": hashlib.sha256(bytes(3_000_000)).hexdigest(),
    }
    assert streams["stdout"]["sha256"] == hashlib.sha256(b"x\n").hexdigest()


async def test_what_fails_before_there_is_anything_to_tell_has_its_own_status(
    runner: Daemon,
) -> None:
    async with streamed(runner, "true", session="somebody-else") as stream:
        assert stream.response.status == 409
        assert (await stream.response.json())["error"] == "session_workspace_dirty"
    async with streamed(runner, "true", language="cobol") as stream:
        assert stream.response.status == 400


async def test_a_quiet_run_and_a_wait_in_the_queue_have_a_pulse(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch(RUNNER_HEARTBEAT="100ms", RUNNER_MAX_JOBS="1")
    async with streamed(daemon, "sleep 0.6; echo done") as first:
        await first.until("started")
        async with streamed(daemon, "echo second") as second:
            waiting = [event async for event in second]
        running = [event async for event in first]
    names = [event.name for event in running]
    assert names.count(":") >= 4 and names[-2:] == ["stdout", "result"]
    names = [event.name for event in waiting]
    assert names.count(":") >= 4
    assert [name for name in names if name != ":"] == ["started", "stdout", "result"]


async def test_what_fails_once_the_stream_is_open_is_an_error_event_and_no_result(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch(
        RUNNER_HEARTBEAT="100ms", RUNNER_MAX_JOBS="1", RUNNER_QUEUE_WAIT="300ms"
    )
    async with streamed(daemon, "sleep 60") as first:
        await first.until("started")
        async with streamed(daemon, "true") as second:
            events = await second.rest()
    assert [event.name for event in events] == ["error"]
    assert events[0].data["error"] == "overloaded" and events[0].data["status"] == 429
    assert events[0].data["retryable"] is True


def rss_of(daemon: Daemon) -> int:
    text = Path(f"/proc/{daemon.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) << 10


async def test_a_client_that_reads_nothing_stops_the_program_and_costs_no_memory(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch(RUNNER_OUTPUT_LIMIT="256MiB")
    await daemon.execute("true", language="bash", session=SESSION)
    code = """
i=0
while :; do head -c 65536 /dev/zero | tr '\\0' x; i=$((i+1)); echo $i > progress; done
"""
    body = json.dumps(body_of(code, run_timeout=4000)).encode()
    # Not aiohttp's client: this one has a small receive buffer, and leaves it full.
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", int(daemon.url.rsplit(":", 1)[1])))
        raw.sendall(
            b"POST /execute HTTP/1.1\r\nHost: test\r\nAccept: text/event-stream\r\n"
            b"Content-Type: application/json\r\nX-Runtime-Session-Id: %s\r\n"
            b"Content-Length: %d\r\n\r\n" % (SESSION.encode(), len(body)) + body
        )
        before = rss_of(daemon)
        seen = [b"nothing yet"]
        async with asyncio.timeout(3.5):
            while seen[-1:] * 2 != seen[-2:] or not seen[-1].strip().isdigit():
                await asyncio.sleep(0.4)
                seen.append((await daemon.file(SESSION, "progress")).body)
        # It stands still, at what the kernel buffers of the connection and our window take.
        assert int(seen[-1]) < 256
        assert rss_of(daemon) - before < 48 << 20
        # Its time limit ends it, and the session does not wait for that client.
        begun = time.monotonic()
        reply = await daemon.execute("echo next", language="bash", session=SESSION)
        assert reply.json["run"]["stdout"] == "next\n"
        assert time.monotonic() - begun < 4.5
