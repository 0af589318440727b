"""An execution as live events: `text/event-stream`, as the HTML standard (9.2) writes it.

Bytes and order are described in docs/streaming.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import msgspec
from aiohttp import web

from runner.api.middleware import EVENT
from runner.errors import Internal, RunnerError
from runner.execution.executions import Attended
from runner.execution.running import Execution, Finished
from runner.execution.transcript import Event, Reader

#: After the execution's own limits: how long a client may take to read what is one write of ours.
STALL_TIMEOUT = 10.0
#: No proxy shall hold events back or keep them: X-Accel-Buffering is nginx's word for it.
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
_HEARTBEAT = b": still running\n\n"


async def follow(
    request: web.Request,
    attended: Attended,
    *,
    head: Mapping[str, str],
    heartbeat: float,
    patience: float,
) -> tuple[Finished | None, web.StreamResponse]:
    """Streams it to its end; the result is None if an `error` event is what it ended with.

    What fails before there was anything to tell is raised, to be answered with its own status.
    `patience`: seconds that one write may take beside STALL_TIMEOUT.
    """
    execution = attended.execution
    stream = _Stream(request, head, patience=patience + STALL_TIMEOUT)
    reader = execution.transcript.reader()
    try:
        while events := await _next(reader, stream, heartbeat):
            await stream.write(b"".join(_event(execution, event) for event in events))
        try:
            finished = await execution.result()
        except Exception as error:
            if not stream.is_open:
                raise
            failure = error if isinstance(error, RunnerError) else Internal()
            request[EVENT].update({"error": failure.code, "reason": failure.reason})
            body = failure.body() | {"status": failure.status}
            await stream.write(_named("error", msgspec.json.encode(body)))
            return None, await stream.end()
        await stream.write(_named("result", finished.body))
        return finished, await stream.end()
    finally:
        reader.close()


async def _next(reader: Reader, stream: _Stream, heartbeat: float) -> list[Event]:
    """The next events; while there are none, a comment every `heartbeat` seconds."""
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(heartbeat):
                return await reader.next()
        await stream.write(_HEARTBEAT)


def _event(execution: Execution, event: Event) -> bytes:
    data: dict[str, str] = {"stage": event.stage}
    if event.mark == "started":
        data["id"] = execution.id
    else:
        data["data"] = event.text
    return _named(event.mark, msgspec.json.encode(data))


def _named(name: str, data: bytes) -> bytes:
    """JSON of ours has no line break outside of strings, and none inside: one `data` line."""
    return b"event: %s\ndata: %s\n\n" % (name.encode("ascii"), data)


class _Stream:
    """The response, opened by what is written first."""

    def __init__(self, request: web.Request, head: Mapping[str, str], *, patience: float) -> None:
        self._request = request
        self._patience = patience
        self._response = web.StreamResponse(headers={**_HEADERS, **head})
        self.is_open = False

    async def write(self, data: bytes) -> None:
        """Returns when the connection can take more. A client that takes nothing is cut off."""
        try:
            async with asyncio.timeout(self._patience):
                if not self.is_open:
                    self.is_open = True
                    await self._response.prepare(self._request)
                await self._response.write(data)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("the client reads nothing") from None

    async def end(self) -> web.StreamResponse:
        """The regular end of the stream."""
        await self._response.write_eof()
        return self._response
