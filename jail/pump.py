"""Moves bytes between the daemon and a jail over non-blocking pipes. Nothing here ends a jail.

Reading waits for the sink, so a slow client slows the program down and memory stays bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

from jail.facts import Captured

#: A pipe of the kernel's holds 64 KiB.
READ_BYTES = 65536
#: Between reads of what is thrown away: 64 MB/s is enough for an honest program, and a flood then
#: costs the daemon a few per cent of a core instead of all of it.
DROP_PAUSE_S = 0.001
#: Of nsjail's own log, for people.
LOG_LINES = 20
LOG_LINE_BYTES = 500

StreamName = Literal["stdout", "stderr"]


class OutputSink(Protocol):
    """Takes output as it comes; it is awaited before more of that stream is read."""

    async def __call__(self, stream: StreamName, data: bytes) -> None:
        """`data` is never empty, and never more than what is kept of the stream."""


async def ready(descriptor: int, *, to_write: bool = False) -> None:
    """Waits until a non-blocking descriptor can be read, or written."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    add = loop.add_writer if to_write else loop.add_reader
    remove = loop.remove_writer if to_write else loop.remove_reader
    add(descriptor, wake)
    try:
        await woken
    finally:
        remove(descriptor)


async def read_some(descriptor: int) -> bytes:
    """What is there to read, once something is; empty at the end."""
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            await ready(descriptor)


async def feed(descriptor: int, data: bytes) -> None:
    """Writes all of `data`, or as much as the reader cares to read. The caller closes."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            await ready(descriptor, to_write=True)
        except BrokenPipeError:
            # The program does not have to read its input.
            return


class OutputPump:
    """Reads one stream to its end: keeps up to `keep_bytes`, counts and hashes the rest."""

    def __init__(
        self,
        descriptor: int,
        name: StreamName,
        keep_bytes: int,
        *,
        sink: OutputSink | None,
        on_overflow: Callable[[], None] | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._name = name
        self._keep_bytes = keep_bytes
        self._sink = sink
        self._on_overflow = on_overflow
        self._kept = bytearray()
        self._total = 0
        self._hash = hashlib.sha256()

    async def run(self) -> None:
        """Until the end of the stream."""
        while data := await read_some(self._descriptor):
            kept = self._take(data)
            if kept and self._sink is not None:
                await self._sink(self._name, kept)
            # Reading never waits while there is something: without this a flood would starve the
            # loop, and with it the deadline.
            await asyncio.sleep(0 if kept else DROP_PAUSE_S)
            # A flood that is always ready to be read would keep the loop from everything else.
            await asyncio.sleep(0)

    def take_rest(self) -> None:
        """What a dead jail left in the pipe, without waiting and without the sink."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._descriptor, READ_BYTES):
                self._take(data)

    def _take(self, data: bytes) -> bytes:
        """Accounts for `data`; returns the part of it that is kept."""
        kept = data[: self._keep_bytes - len(self._kept)]
        self._kept += kept
        self._total += len(data)
        self._hash.update(data)
        if self._on_overflow is not None and self._total > self._keep_bytes:
            self._on_overflow()
        return kept

    @property
    def captured(self) -> Captured:
        """What has been read so far."""
        return Captured(bytes(self._kept), self._total, self._hash.hexdigest())


class LogPump:
    """Reads nsjail's log descriptor and keeps its last lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque(maxlen=LOG_LINES)
        self._partial = b""

    async def run(self) -> None:
        """Until nsjail has closed it."""
        while data := await read_some(self._descriptor):
            self._take(data)

    def take_rest(self) -> None:
        """What is left in the pipe, without waiting."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._descriptor, READ_BYTES):
                self._take(data)

    def _take(self, data: bytes) -> None:
        *lines, partial = (self._partial + data).split(b"\n")
        self._lines.extend(line[:LOG_LINE_BYTES] for line in lines)
        self._partial = partial[:LOG_LINE_BYTES]

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines so far."""
        last = (self._partial,) if self._partial else ()
        return tuple(line.decode("utf-8", "replace") for line in (*self._lines, *last))
