"""One WebSocket connection at a terminal: frames in, frames out, and how it is closed.

Reading never waits for the shell, and sending never waits for reading: a client that stops at one
does not stop the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time

from aiohttp import WSMsgType, web

from jail.profile import WindowSize
from runner.errors import BadRequest
from runner.terminal.attachment import Attachment
from runner.terminal.frames import Ack, CloseCode, Closing, Resize, decode, encode_error

log = logging.getLogger(__name__)

#: Of one frame of the client's.
FRAME_BYTES = 1 << 20
#: Seconds without a frame of ours after which a ping is sent: proxies cut what is silent for 30.
PING_INTERVAL = 20.0
#: Bytes after which a ping is sent, for the client to say how far it has read.
PING_BYTES = 32 << 10
#: Seconds without any sign of a client, its pongs included, after which it counts as gone.
SILENCE_MAX = 75.0
#: Seconds for a client to take what the shell said last, and for a close frame to get out.
LINGER, CLOSE_TIMEOUT = 5.0, 2.0

LEFT = Closing(CloseCode.DONE)


class _Heard:
    """When the client was heard last."""

    def __init__(self) -> None:
        self.at = time.monotonic()


async def converse(
    request: web.Request, ws: web.WebSocketResponse, attachment: Attachment, *, acks: bool
) -> str:
    """Until either side has had enough; a word for how it ended, for the log.

    `acks`: the client says itself how far it got, and its pongs say only that it lives.
    """
    heard = _Heard()
    sending = asyncio.create_task(_send(ws, attachment))
    receiving = asyncio.create_task(_receive(ws, attachment, heard, acks=acks))
    dismissed = asyncio.create_task(attachment.dismissed())
    tasks: tuple[asyncio.Task[object], ...] = (sending, receiving, dismissed)
    try:
        done: set[asyncio.Task[object]] = set()
        while not done and time.monotonic() - heard.at < SILENCE_MAX:
            done, _ = await asyncio.wait(
                tasks, timeout=PING_INTERVAL, return_when=asyncio.FIRST_COMPLETED
            )
        if attachment.closing is not None and not receiving.done():
            await asyncio.wait(
                {sending, receiving}, timeout=LINGER, return_when=asyncio.FIRST_COMPLETED
            )
            closing = attachment.closing
        elif receiving.done() and not receiving.cancelled() and receiving.exception() is None:
            closing = receiving.result()
        else:
            closing = LEFT
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionError):
                log.error("a terminal's connection failed", exc_info=outcome)
                closing = Closing(CloseCode.INTERNAL)
    await _close(request, ws, closing)
    return closing.code.name.lower()


async def _send(ws: web.WebSocketResponse, attachment: Attachment) -> None:
    await ws.send_str(attachment.ready)
    pinged = attachment.offset
    while True:
        try:
            async with asyncio.timeout(PING_INTERVAL):
                data = await attachment.next()
        except TimeoutError:
            data = b""
        if data is None:
            return
        if data:
            await ws.send_bytes(data)
        if not data or attachment.offset - pinged >= PING_BYTES:
            pinged = attachment.offset
            await ws.ping(str(pinged).encode())


async def _receive(
    ws: web.WebSocketResponse, attachment: Attachment, heard: _Heard, *, acks: bool
) -> Closing:
    """Until the client leaves, or has to."""
    while True:
        message = await ws.receive()
        heard.at = time.monotonic()
        if message.type is WSMsgType.BINARY:
            if not attachment.type(message.data):
                return Closing(CloseCode.TOO_BIG)
        elif message.type is WSMsgType.TEXT:
            await _control(ws, attachment, message.data)
        elif message.type is WSMsgType.PONG:
            if not acks and re.fullmatch(rb"[0-9]{1,19}", bytes(message.data)):
                attachment.acknowledge(int(message.data))
        elif message.type is WSMsgType.PING:
            await ws.pong(message.data)
        else:
            return LEFT


async def _control(ws: web.WebSocketResponse, attachment: Attachment, text: str) -> None:
    try:
        frame = decode(text)
    except BadRequest as error:
        await ws.send_str(encode_error(error))
        return
    if isinstance(frame, Resize):
        attachment.resize(WindowSize(columns=frame.cols, rows=frame.rows))
    elif isinstance(frame, Ack):
        attachment.acknowledge(frame.offset)
    else:
        attachment.hang_up()


async def _close(request: web.Request, ws: web.WebSocketResponse, closing: Closing) -> None:
    """Says why and closes; a client that does not listen is cut off."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            with contextlib.suppress(ConnectionError):
                if closing.frame is not None and not ws.closed:
                    await ws.send_str(closing.frame)
            await ws.close(code=closing.code, message=closing.code.name.lower().encode())
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
