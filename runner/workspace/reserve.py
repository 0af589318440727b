"""Room that is kept aside on the data root's file system, for a disk that a guest has filled.

The daemon has to go on then: note what becomes of the workspace, prime the program that makes room,
wipe. A few allocated files hold bytes and inodes; they are removed when they are needed, and made
again when there is room.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading

from runner.workspace.full import is_full

log = logging.getLogger(__name__)

#: As many inodes as one plain execution takes: staged files and their directories, a record.
FILES = 16
_NAMES = tuple(f"reserve.{number}" for number in range(FILES))


class Reserve:
    """`size` bytes in a directory that only root may enter. All of it blocks; any thread may."""

    def __init__(self, directory_fd: int, size: int) -> None:
        """Takes over `directory_fd`."""
        self._fd = directory_fd
        self._each = max(size // FILES, 1)
        self._lock = threading.Lock()
        self._held = 0

    def close(self) -> None:
        """Gives the descriptor back; what is kept aside stays so for the next daemon."""
        os.close(self._fd)

    @property
    def is_whole(self) -> bool:
        """Whether all of it is kept aside."""
        return self._held == FILES

    @property
    def held_bytes(self) -> int:
        """Bytes that giving it up makes free."""
        return self._held * self._each

    def fill(self) -> bool:
        """Keeps aside what is missing, as much of it as there is room for; whether that is all."""
        with self._lock:
            self._held = 0
            for name in _NAMES:
                if not self._take(name):
                    break
                self._held += 1
            return self.is_whole

    def give_up(self) -> bool:
        """Makes all of it free; whether there was anything."""
        with self._lock:
            given = False
            for name in _NAMES:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._fd)
                    given = True
            self._held = 0
        if given:
            log.warning("room is short: what was kept aside is given up")
        return given

    def _take(self, name: str) -> bool:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            file = os.open(name, flags, 0o600, dir_fd=self._fd)
        except OSError as error:
            return self._refused(error)
        try:
            # Blocks of 512 bytes, whatever the file system's own are (stat(2)).
            if os.fstat(file).st_blocks * 512 < self._each:
                os.posix_fallocate(file, 0, self._each)
        except OSError as error:
            # What was allocated before it failed must not be kept from the guest for nothing.
            os.unlink(name, dir_fd=self._fd)
            return self._refused(error)
        finally:
            os.close(file)
        return True

    @staticmethod
    def _refused(error: OSError) -> bool:
        if not is_full(error):
            log.exception("no room can be kept aside")
        return False
