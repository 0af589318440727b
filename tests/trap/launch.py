"""The wrapper of a daemon under a trap: puts on the filter, hands its listener over, and execs.

    python launch.py SOCKET FILTER_HEX COMMAND…

Root needs no no_new_privs for a filter (seccomp(2)), and without it nsjail behaves as ever.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

_NR_SECCOMP = 317
_SET_MODE_FILTER = 1
_NEW_LISTENER = 1 << 3


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def main() -> None:
    """Never returns."""
    address, filter_hex, *command = sys.argv[1:]
    lines = bytes.fromhex(filter_hex)
    program = _Program(len(lines) // 8, lines)
    trap = socket.socket(socket.AF_UNIX)
    trap.connect(address)
    libc = ctypes.CDLL(None, use_errno=True)
    listener = libc.syscall(
        ctypes.c_long(_NR_SECCOMP),
        ctypes.c_long(_SET_MODE_FILTER),
        ctypes.c_long(_NEW_LISTENER),
        ctypes.byref(program),
    )
    if listener < 0:
        raise OSError(ctypes.get_errno(), "no filter")
    # sendmsg is not among the calls that are stopped.
    socket.send_fds(trap, [b"l"], [listener])
    trap.recv(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
