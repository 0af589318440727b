"""The trap itself: a thread that hears of each call and does what it was told to do."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.trap.calls import CHANGING, READING, Call, Kind, filter_program

# include/uapi/linux/seccomp.h, ioctls of type '!'
_NOTIF_RECV, _NOTIF_SEND = 0xC0502100, 0xC0182101
_FLAG_CONTINUE = 1
_NOTIF = struct.Struct("=QII iI Q 6Q")
_RESPONSE = struct.Struct("=QqiI")
_AT_FDCWD = (1 << 32) - 100
_PATH_MAX = 4096
_LAUNCH = str(Path(__file__).with_name("launch.py"))
_RANDOM = re.compile(r"[0-9a-f]{16,}")
#: For every process that a dead daemon has left to be gone.
EMPTY_TIMEOUT = 20.0
#: Instead of an errno: the daemon is killed, and the call never happens.
KILL = -1


@dataclass(frozen=True, slots=True)
class Stopped:
    """One call that waits. `paths` are below the data root, with what is random made alike."""

    name: str
    kind: Kind
    paths: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {' '.join(self.paths)}"


#: What is done with a call: 0 runs it, an errno fails it, KILL kills. Asked on a thread of its own.
Decision = Callable[[Stopped], int]


class Trap:
    """One daemon's. `with Trap(root) as trap: Daemon(root, environ, wrapper=trap.wrapper)`."""

    def __init__(self, data_root: Path, *, reading: bool = False) -> None:
        """Hears only of calls that name something below `data_root`, and only of the daemon's own.

        With `reading` also of those that only look.
        """
        self._root = str(data_root).encode()
        calls = dict(CHANGING)
        if reading:
            # An openat that writes is told by its flags.
            calls |= {name: call for name, call in READING.items() if name != "openat"}
            calls |= {"openat": READING["openat"]}
        self._names = {call.number: (name, call) for name, call in calls.items()}
        self._socket = socket.socket(socket.AF_UNIX)
        # An abstract address: nothing to clean up.
        self._socket.bind(b"\0trap-%d-%d" % (os.getpid(), id(self)))
        self._socket.listen(1)
        address = self._socket.getsockname()
        self.wrapper: tuple[str, ...] = (
            sys.executable, "-I", "-S", "-c",
            f"import sys; sys.argv[1:2] = ['\\0' + sys.argv[1]]; "
            f"exec(compile(open({_LAUNCH!r}).read(), 'launch', 'exec'))",
            address[1:].decode(), filter_program(calls.values()).hex(),
        )  # fmt: skip
        self._lock = threading.Lock()
        self._decide: Decision | None = None
        self._pid = 0
        self._thread = threading.Thread(target=self._run, name="trap", daemon=True)
        self._stop_read, self._stop_write = os.pipe()
        self._empty = threading.Event()

    def __enter__(self) -> Trap:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._stop_write)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        os.close(self._stop_read)

    def set(self, decide: Decision | None) -> None:
        """From the next call on. When this returns no decision of the last one is under way."""
        with self._lock:
            self._decide = decide

    def empty(self) -> bool:
        """Waits until no process that came from the daemon is left; whether that is so."""
        return self._empty.wait(EMPTY_TIMEOUT)

    # The thread

    def _run(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        with connection:
            _, fds, _, _ = socket.recv_fds(connection, 1, 1)
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            self._pid = struct.unpack("iii", credentials)[0]
            connection.send(b"g")
        try:
            self._listen(fds[0])
        finally:
            os.close(fds[0])

    def _listen(self, listener: int) -> None:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(self._stop_read, 0)
        while True:
            for fd, event in poll.poll():
                if fd == self._stop_read:
                    return
                if event & select.POLLIN:
                    self._take(listener)
                elif event & select.POLLHUP:
                    # Nobody is left under this filter.
                    self._empty.set()
                    return

    def _take(self, listener: int) -> None:
        notice = bytearray(_NOTIF.size)
        try:
            fcntl.ioctl(listener, _NOTIF_RECV, notice, True)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return  # It died meanwhile.
            raise
        number_of_notice, tid, _, call_number, _, _, *args = _NOTIF.unpack(notice)
        with self._lock:
            answer = self._answer(tid, call_number, args)
        if answer == KILL:
            os.kill(self._pid, signal.SIGKILL)
            return
        flags = 0 if answer else _FLAG_CONTINUE
        with contextlib.suppress(FileNotFoundError):
            response = bytearray(_RESPONSE.pack(number_of_notice, 0, -answer, flags))
            fcntl.ioctl(listener, _NOTIF_SEND, response)

    def _answer(self, tid: int, call_number: int, args: list[int]) -> int:
        # Only a task of the daemon itself: the jails' processes have the filter too.
        if self._decide is None or not os.path.exists(f"/proc/{self._pid}/task/{tid}"):
            return 0
        name, call = self._names[call_number]
        try:
            paths = self._paths(tid, call, args)
        except OSError:
            return 0  # A bad descriptor or address: the kernel refuses it itself.
        if not paths:
            return 0
        kind = call.kind
        if name == "openat" and args[2] & CHANGING["openat"].bits[1]:  # type: ignore[index]
            kind = Kind.GROWS
        return self._decide(Stopped(name, kind, tuple(paths)))

    def _paths(self, tid: int, call: Call, args: list[int]) -> list[str]:
        found = []
        if call.fd is not None:
            found.append(os.readlink(b"/proc/%d/fd/%d" % (tid, args[call.fd] & 0xFFFFFFFF)))
        for directory, path in call.paths:
            name = _string(tid, args[path]) if args[path] else b""
            if not name and call.kind is Kind.READS:
                continue  # fstat: of an open file, whose inode is in memory. No disk fails it.
            at = args[directory] & 0xFFFFFFFF if directory is not None else _AT_FDCWD
            if not name.startswith(b"/"):
                link = b"cwd" if at == _AT_FDCWD else b"fd/%d" % at
                above = os.readlink(b"/proc/%d/%s" % (tid, link))
                name = above + b"/" + name if name else above
            found.append(name)
        below = [each for each in found if each == self._root or each.startswith(self._root + b"/")]
        return [_alike(each[len(self._root) + 1 :]) for each in below]


def _string(tid: int, address: int) -> bytes:
    fd = os.open(f"/proc/{tid}/mem", os.O_RDONLY)
    try:
        return os.pread(fd, _PATH_MAX, address).partition(b"\0")[0]
    finally:
        os.close(fd)


def _alike(path: bytes) -> str:
    return _RANDOM.sub("*", path.decode("utf-8", "backslashreplace"))


def kinds(*wanted: Kind) -> Callable[[Stopped], bool]:
    """Calls of these kinds."""
    return lambda stopped: stopped.kind in wanted


class At:
    """Does `what` at the `number`th call (from 1) that `counts`; with `on` also at all after it.

    `seen` are those that counted until then, `hit` the one. With number 0 it only counts.
    """

    def __init__(
        self,
        number: int,
        what: int,
        *,
        counts: Callable[[Stopped], bool] = lambda _: True,
        on: bool = False,
    ) -> None:
        self._number = number
        self._what = what
        self._counts = counts
        self._on = on
        self.seen: list[Stopped] = []
        self.hit: Stopped | None = None

    def __call__(self, stopped: Stopped) -> int:
        if not self._counts(stopped) or (self.hit is not None and not self._on):
            return 0
        self.seen.append(stopped)
        if not self._number or len(self.seen) < self._number:
            return 0
        self.hit = self.hit or stopped
        return self._what


def inside(*names: str) -> Callable[[Stopped], bool]:
    """Calls that name something in one of these directories of the data root."""

    def counts(stopped: Stopped) -> bool:
        return any(path.partition("/")[0] in names for path in stopped.paths)

    return counts


__all__ = ["KILL", "At", "Decision", "Stopped", "Trap", "inside", "kinds"]
