"""The daemon's end of a jail's terminal: bytes in and out without blocking, and its size."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios

from jail.profile import WindowSize
from jail.pump import ready
from jail.spawn import Descriptor

#: What the kernel gives out at once is 4 KiB; more is only asked for to be told of the end sooner.
READ_BYTES = 16384


class Pty:
    """Owns the master, which is non-blocking. One reader and one writer at a time."""

    def __init__(self, master: Descriptor) -> None:
        self._master = master

    def close(self) -> None:
        """Hangs the shell up, if it still lives. Nobody may be reading or writing."""
        self._master.close()

    async def read(self, limit: int) -> bytes:
        """What there is, once there is something; empty when no process has it open any more."""
        while True:
            try:
                return os.read(self._master.number, min(limit, READ_BYTES))
            except BlockingIOError:
                await ready(self._master.number)
            except OSError as error:
                # How Linux says that the other end is closed.
                if error.errno != errno.EIO:
                    raise
                return b""

    async def write(self, data: bytes) -> None:
        """Types all of it, as fast as the terminal takes it; what nobody can read is dropped."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._master.number, view) :]
            except BlockingIOError:
                await ready(self._master.number, to_write=True)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return

    def resize(self, size: WindowSize) -> None:
        """The kernel tells the foreground process (SIGWINCH)."""
        words = struct.pack("=HHHH", size.rows, size.columns, 0, 0)
        fcntl.ioctl(self._master.number, termios.TIOCSWINSZ, words)
