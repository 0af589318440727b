"""What was measured of one jail. Typed facts only: nothing here can be set by what it printed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Ending(StrEnum):
    """Why *we* ended a jail; the first reason stands. A jail that ended by itself has none."""

    DEADLINE = "deadline"
    CPU_LIMIT = "cpu_limit"
    OUTPUT_LIMIT = "output_limit"
    CANCELLED = "cancelled"
    SETUP_TIMEOUT = "setup_timeout"


class Enforcement(StrEnum):
    """`ENFORCED`: the kernel's cgroup controllers hold the limits. `ADVISORY`: rlimits only."""

    ENFORCED = "enforced"
    ADVISORY = "advisory"


@dataclass(frozen=True, slots=True)
class Captured:
    """One output stream: what was kept of it, and what was produced before it ended or was cut."""

    kept: bytes
    bytes_total: int
    sha256: str

    @property
    def truncated(self) -> bool:
        """Whether bytes were produced that were not kept."""
        return self.bytes_total > len(self.kept)


@dataclass(frozen=True, slots=True)
class Counters:
    """The cgroup's counters, read after death. None where no controller counts it."""

    memory_peak_bytes: int | None = None
    oom_kills: int | None = None
    pids_denied: int | None = None
    cpu_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """One jail, from start to proven end.

    `started`      our init reported that the command was exec'd.
    `exec_errno`   the errno with which exec failed inside the jail, or None.
    `wait_status`  raw wait status of the command as init saw it; None if init died first.
    `nsjail_status` raw wait status of the nsjail process; None if it could not even be started.
    `nsjail_log`   last lines nsjail wrote to its own descriptor: for people, not for decisions.
    `cpu_ns`       from the exec on; what nsjail used to set the jail up is only in `counters`.
    `proven_empty` no process of the jail was left when it was looked at last.
    Times in ns, sizes in bytes.
    """

    started: bool
    exec_errno: int | None
    wait_status: int | None
    nsjail_status: int | None
    nsjail_log: tuple[str, ...]
    ended_by: Ending | None
    wall_ns: int
    cpu_ns: int
    memory_peak_bytes: int
    counters: Counters
    enforcement: Enforcement
    stdout: Captured
    stderr: Captured
    proven_empty: bool
    #: A short word for what kept the jail from being set up; None if it was.
    setup_failure: str | None = None
    #: The counters when the limits were set: what moved since then this jail moved.
    before: Counters = Counters()
