"""Reads the reports of jail/native/init.c: pure, and safe on any bytes.

Format, 48 bytes in host order: magic "SRI1", u32 kind, i64 value, u64 at_ns, u64 user_ns,
u64 system_ns, u64 max_rss_bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"SRI1"
_LAYOUT = struct.Struct("=4sIqQQQQ")
SIZE = _LAYOUT.size


class Kind(IntEnum):
    """What init has to say."""

    UP = 1
    STARTED = 2
    EXEC_FAILED = 3
    EXITED = 4
    INIT_FAILED = 5
    #: Said between UP and STARTED; the master of the command's terminal travels with it.
    TERMINAL = 6


@dataclass(frozen=True, slots=True)
class Report:
    """One report. `value` is the errno or the raw wait status; the usage is that of all reaped.

    `at_ns` is CLOCK_MONOTONIC, which is the same inside and outside of the jail.
    """

    kind: Kind
    value: int
    at_ns: int
    user_ns: int
    system_ns: int
    max_rss_bytes: int

    @property
    def cpu_ns(self) -> int:
        """User and system time of everything init has reaped."""
        return self.user_ns + self.system_ns


def parse(datagram: bytes) -> Report | None:
    """The report in a datagram, or None if it is not one of ours."""
    if len(datagram) != SIZE:
        return None
    magic, kind, value, at_ns, user_ns, system_ns, max_rss = _LAYOUT.unpack(datagram)
    if magic != MAGIC or kind not in Kind.__members__.values():
        return None
    return Report(Kind(kind), value, at_ns, user_ns, system_ns, max_rss)
