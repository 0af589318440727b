"""The kernel's cgroup files: reading a number, writing a word, removing a group.

Each call is one short file operation, but for `remove_group`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time

#: A group whose last process has died can be busy for a moment more.
POLL_S = 0.005


def members(group: str) -> list[int]:
    """The processes directly in a group; none if it is not there."""
    try:
        with open(os.path.join(group, "cgroup.procs"), encoding="ascii") as file:
            return [int(line) for line in file]
    except OSError:
        return []


def kill_members(group: str) -> bool:
    """Kills every process in `group`; whether none was left to kill."""
    for name, word in (("freezer.state", "THAWED"), ("cgroup.kill", "1")):
        # Only where the hierarchy has such a file.
        with contextlib.suppress(OSError):
            write(os.path.join(group, name), word)
    left = False
    for pid in members(group):
        left = True
        # The pidfd is opened first and membership checked after, so a reused number is not hit.
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                if pid in members(group):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)
    return not left


def remove_group(directory: str, deadline: float) -> bool:
    """Removes an empty group, trying until `deadline` on time.monotonic()."""
    while True:
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        else:
            return True


def write(path: str | None, text: str) -> None:
    """Writes one word. Raises OSError; where there is no path there is nothing to do."""
    if path is not None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)


def write_if_there(path: str | None, text: str) -> None:
    """For files that exist only when the kernel accounts for swap."""
    with contextlib.suppress(FileNotFoundError):
        write(path, text)


def read(path: str | None) -> str | None:
    """The text of a file, None where it is not there."""
    if path is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 4096).decode("ascii")
        finally:
            os.close(descriptor)
    except OSError:
        # Older kernels lack some of the counters (memory.peak before 5.19): not counted.
        return None


def number(path: str | None) -> int | None:
    """The one number of a file."""
    text = read(path)
    return int(text) if text is not None and text.strip().isdigit() else None


def keyed(path: str | None, key: str) -> int | None:
    """The number behind `key` in a file of "key number" lines."""
    for line in (read(path) or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.strip().isdigit():
            return int(value)
    return None
