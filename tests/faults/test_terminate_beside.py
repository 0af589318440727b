"""A VM that is to be terminated while others than its session work in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from tests.conftest import SESSION
from tests.faults.terminating import NOISE, assert_ended, serves, state, terminate, until_state
from tests.fileserver import FileServer
from tests.harness import Daemon, Reply
from tests.leftovers import TEST_UID, processes_of
from tests.mounts import tmpfs
from tests.pushing import Item, batch

pytestmark = pytest.mark.asyncio(loop_scope="module")

Launch = Callable[..., Any]


async def beside(daemon: Daemon) -> list[asyncio.Task[Reply]]:
    """Executions without a session, each at another point of its way."""
    many = [{"name": f"{number}.txt", "content": "x" * 100} for number in range(200)]
    c = "int main(void) { return 0; }"
    primed = [daemon.execute("print('ran')", files=many) for _ in range(3)]
    compiled = [daemon.execute(c, language="c", name="main.c") for _ in range(2)]
    return [asyncio.create_task(each) for each in primed + compiled]


def told(reply: Reply) -> str:
    """How a request of no session fared; what is not true of any of them fails."""
    if reply.status == 200:
        kind = str(reply.json["run"]["outcome"]["kind"])
        assert kind in ("exited", "cancelled"), reply.body
        return kind
    assert (reply.status, reply.json["error"]) == (429, "overloaded"), reply.body
    assert (reply.json["retryable"], reply.json["recycle"]) == (True, False)
    return str(reply.json["error"])


async def test_executions_without_a_session_are_never_failures(launch: Launch) -> None:
    daemon: Daemon = await launch()
    fared: list[str] = []
    for number in range(8):
        await daemon.request("POST", "/session/boot", session=SESSION)
        running = await beside(daemon)
        await asyncio.sleep(0.015 * number)
        assert (await terminate(daemon)).status == 200
        fared += [told(reply) for reply in await asyncio.gather(*running)]
    assert "cancelled" in fared
    await serves(daemon, "the-next")


async def test_nothing_new_begins_while_a_session_is_being_ended(launch: Launch) -> None:
    daemon: Daemon = await launch()
    await daemon.execute(NOISE, session=SESSION)
    headers = {"X-Runtime-Session-Id": SESSION}
    async with daemon.client.get("/session/checkpoint", headers=headers) as response:
        await until_state(daemon, "checkpointing")
        ending = asyncio.create_task(terminate(daemon))
        await asyncio.sleep(0.2)
        late = asyncio.create_task(daemon.execute("sleep 2.5", language="bash"))
        assert (await ending).status == 200
        # What it says is so now, and not only when it was first looked at.
        assert not [line for line in processes_of(TEST_UID) if "sleep 2.5" in line]
        with pytest.raises(aiohttp.ClientError):
            await response.read()
    reply = await late
    assert (told(reply), reply.json["reason"]) == ("overloaded", "terminating")
    assert reply.headers["Retry-After"] == "1"
    assert (await daemon.execute("pass")).status == 200


async def cut(sent: Callable[[AsyncIterator[bytes]], Any], daemon: Daemon, body: bytes) -> Reply:
    """The answer to a request whose body makes a pause, in which the VM is terminated."""
    ended = asyncio.Event()

    async def halves() -> AsyncIterator[bytes]:
        yield body[: len(body) // 2]
        await ended.wait()
        yield body[len(body) // 2 :]

    sending = asyncio.create_task(sent(halves()))
    async with asyncio.timeout(5):
        while not os.listdir(daemon.data_root / "staging"):
            await asyncio.sleep(0.01)
    assert (await terminate(daemon)).status == 200
    assert os.listdir(daemon.data_root / "staging") == []
    ended.set()
    reply: Reply = await sending
    return reply


async def test_an_upload_under_way_is_told(launch: Launch) -> None:
    daemon: Daemon = await launch()
    await daemon.request("POST", "/session/boot", session=SESSION)

    def put(body: AsyncIterator[bytes]) -> Any:
        return daemon.request("PUT", "/session/files/f", session=SESSION, data=body)

    reply = await cut(put, daemon, bytes(2000))
    assert (reply.status, reply.json["error"]) == (409, "session_busy"), reply.body
    # It has not bound the VM to its session again.
    assert await state(daemon) == "terminated"
    await serves(daemon, "the-next")


async def test_a_push_under_way_is_told_and_leaves_nothing(launch: Launch) -> None:
    daemon: Daemon = await launch()

    def push(body: AsyncIterator[bytes]) -> Any:
        headers = {"Content-Type": "application/x-gtar"}
        return daemon.request("POST", "/session/inputs", data=body, headers=headers)

    pushed = batch(Item("hs", "h1", os.urandom(100_000)))
    assert told(await cut(push, daemon, pushed)) == "overloaded"
    assert os.listdir(daemon.data_root / "inputs") == []
    await serves(daemon, "the-next")


async def test_a_fetch_under_way_is_given_up(launch: Launch) -> None:
    async def drips(writer: asyncio.StreamWriter, body: bytes) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for number in range(len(body)):
            writer.write(body[number : number + 1])
            await writer.drain()
            await asyncio.sleep(0.1)

    async with FileServer() as server:
        server.put("hs", "h1", bytes(8))
        server.misdeeds["h1"] = drips
        daemon: Daemon = await launch(RUNNER_FILE_SERVER_URL=server.url)
        file = {"id": "h1", "name": "h1", "storage_session_id": "hs"}
        running = asyncio.create_task(daemon.execute("print('ran')", files=[file]))
        async with asyncio.timeout(5):
            while not server.seen:
                await asyncio.sleep(0.01)
        await assert_ended(daemon)
        assert told(await running) == "cancelled"


async def test_inputs_are_gone_from_a_vm_that_was_terminated_before(launch: Launch) -> None:
    daemon: Daemon = await launch()
    assert (await terminate(daemon)).status == 200
    pushed = batch(Item("hs", "h1", b"of somebody"))
    headers = {"Content-Type": "application/x-gtar"}
    assert (await daemon.request("POST", "/session/inputs", data=pushed, headers=headers)).json
    inputs = daemon.data_root / "inputs"
    with tmpfs(inputs / "held"):
        refused = await terminate(daemon)
        assert (refused.status, refused.json["error"]) == (500, "internal")
    assert (await terminate(daemon)).status == 200
    assert os.listdir(inputs) == []


async def test_a_terminal_that_is_being_opened_is_ended(launch: Launch) -> None:
    daemon: Daemon = await launch()
    headers = {"X-Runtime-Session-Id": SESSION}

    async def attach() -> None:
        with contextlib.suppress(aiohttp.ClientError):
            async with daemon.client.ws_connect("/session/terminal", headers=headers) as shell:
                await shell.receive()

    for number in range(16):
        await daemon.request("POST", "/session/boot", session=SESSION)
        attaching = asyncio.create_task(attach())
        await asyncio.sleep(0.0005 * number)
        assert (await terminate(daemon)).status == 200
        assert not [line for line in processes_of(TEST_UID) if "terminal:" in line]
        attaching.cancel()
