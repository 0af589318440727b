"""A connection that is silent: kept alive by us, and given up when the client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, web
from aiohttp.test_utils import TestServer

from runner.api import conversation
from runner.terminal.frames import CloseCode, Closing


class Quiet:
    """A terminal at which nothing happens."""

    def __init__(self) -> None:
        self.ready = '{"type":"ready"}'
        self.offset = 17
        self.closing: Closing | None = None
        self.acknowledged: list[int] = []

    async def next(self) -> bytes | None:
        await asyncio.Event().wait()
        return None

    async def dismissed(self) -> Closing:
        await asyncio.Event().wait()
        raise AssertionError

    def acknowledge(self, offset: int) -> None:
        self.acknowledged.append(offset)


@pytest.fixture
async def quiet(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Quiet, TestServer]]:
    monkeypatch.setattr(conversation, "PING_INTERVAL", 0.05)
    monkeypatch.setattr(conversation, "SILENCE_MAX", 0.3)
    terminal = Quiet()

    async def get(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse(autoping=False, timeout=0.2)
        await ws.prepare(request)
        await conversation.converse(request, ws, terminal, acks=False)  # type: ignore[arg-type]
        return ws

    app = web.Application()
    app.router.add_get("/", get)
    server = TestServer(app)
    await server.start_server()
    yield terminal, server
    await server.close()


async def attach(server: TestServer, session: ClientSession) -> ClientWebSocketResponse:
    ws = await session.ws_connect(server.make_url("/"), autoping=False)
    assert (await ws.receive()).type is WSMsgType.TEXT
    return ws


async def test_a_silent_terminal_is_kept_from_being_cut(quiet: tuple[Quiet, TestServer]) -> None:
    terminal, server = quiet
    async with ClientSession() as session:
        ws = await attach(server, session)
        for _ in range(10):
            ping = await ws.receive()
            assert (ping.type, ping.data) == (WSMsgType.PING, b"17")
            await ws.pong(ping.data)
        assert set(terminal.acknowledged) == {17}
        await ws.close()


async def test_a_client_that_never_answers_is_given_up(quiet: tuple[Quiet, TestServer]) -> None:
    _, server = quiet
    async with ClientSession() as session:
        ws = await attach(server, session)
        async with asyncio.timeout(2):
            while (message := await ws.receive()).type is WSMsgType.PING:
                pass
        assert message.type is WSMsgType.CLOSE
        assert message.data == CloseCode.DONE


async def test_the_intervals_are_those_that_were_promised() -> None:
    assert conversation.PING_INTERVAL < 30
