"""One client at a terminal, from its attach until it leaves or is sent away.

A client says how far it has read by answering pings, which every WebSocket library does by itself:
each ping carries an offset, and its pong brings that back (RFC 6455 section 5.5.3).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jail.profile import WindowSize
from runner.terminal.frames import Closing, Ready, encode

if TYPE_CHECKING:
    from runner.terminal.terminal import Terminal

#: Of output in one frame.
CHUNK_BYTES = 32 << 10


class Attachment:
    """The terminal as its one client sees it."""

    def __init__(self, terminal: Terminal, *, offset: int, resumed: bool) -> None:
        self._terminal = terminal
        self._changed = asyncio.Event()
        #: Of the next byte that the client is sent.
        self.offset = offset
        #: Set when the connection is to be closed.
        self.closing: Closing | None = None
        self.ready = encode(
            Ready(
                incarnation=terminal.incarnation,
                terminal=terminal.id,
                offset=offset,
                resumed=resumed,
            )
        )

    async def next(self) -> bytes | None:
        """The next bytes for the client; None when there is nothing more to come: see `closing`."""
        replay = self._terminal.replay
        while True:
            if self.closing is not None and (self.closing.at_once or self.offset >= replay.end):
                return None
            if self.offset < replay.end:
                data = replay.read(self.offset, CHUNK_BYTES)
                self.offset += len(data)
                return data
            self._changed.clear()
            await self._changed.wait()

    async def dismissed(self) -> Closing:
        """Waits until the connection is to be closed."""
        while self.closing is None:
            self._changed.clear()
            await self._changed.wait()
        return self.closing

    def acknowledge(self, offset: int) -> None:
        """The client has read all bytes before this one."""
        if self.closing is None and offset <= self.offset:
            self._terminal.acknowledge(offset)

    def type(self, data: bytes) -> bool:
        """Input for the shell; False when more is waiting than is kept."""
        return self.closing is not None or self._terminal.type(data)

    def resize(self, size: WindowSize) -> None:
        """The client's window has this size now."""
        if self.closing is None:
            self._terminal.resize(size)

    def hang_up(self) -> None:
        """The client does not need the shell any more."""
        if self.closing is None:
            self._terminal.hang_up()

    def leave(self) -> None:
        """The connection is gone. The shell waits for the next one, but not for long."""
        self._terminal.left(self)

    # For the terminal

    def notify(self) -> None:
        """There are new bytes."""
        self._changed.set()

    def dismiss(self, closing: Closing) -> None:
        """The connection is to be closed; the first reason stands."""
        if self.closing is None:
            self.closing = closing
        self._changed.set()
