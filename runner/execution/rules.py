"""THE table of outcomes: each kind, whose fault it is, and the fact that decides it. Pure.

The order of the rules is the order of the table; the first that holds decides. No rule reads what
the program printed, and none reads a message: nsjail's log is evidence for people only.
docs/outcomes.md is made from this.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from jail.facts import Ending, Facts
from runner.execution.evidence import (
    StageFacts,
    cpu_used_up,
    death_signal,
    exit_code,
    failed,
    oom_killed,
    overflowed,
    overran,
    pids_denied,
)

Fault = Literal["none", "user", "limit", "infrastructure"]
Status = Literal["RE", "SG", "TO", "OL", "EL", "XX"]


class Kind(StrEnum):
    """The kinds of outcome, as the wire names them."""

    EXITED = "exited"
    SIGNALED = "signaled"
    TIMED_OUT = "timed_out"
    CPU_EXHAUSTED = "cpu_exhausted"
    OUT_OF_MEMORY = "out_of_memory"
    PROCESS_LIMIT = "process_limit"
    OUTPUT_LIMIT = "output_limit"
    STORAGE_FULL = "storage_full"
    FILE_TOO_LARGE = "file_too_large"
    SYSCALL_DENIED = "syscall_denied"
    COMMAND_NOT_FOUND = "command_not_found"
    CANCELLED = "cancelled"
    WORKSPACE_MISSING = "workspace_missing"
    JAIL_FAILED = "jail_failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table. `note` is what a reader of the docs has to know besides."""

    kind: Kind
    fault: Fault
    status: Status | None
    decided_by: str
    message: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A row, and whether it holds."""

    row: Row
    holds: Callable[[StageFacts, Facts], bool]


#: Looked at before every rule.
MISSING = Row(
    Kind.WORKSPACE_MISSING,
    "infrastructure",
    "XX",
    "the workspace was not there when the jail was to start",
    "the workspace is gone",
    "answered with 409 `session_workspace_dirty`",
)

#: The first that holds decides.
RULES: tuple[Rule, ...] = (
    Rule(
        Row(
            Kind.JAIL_FAILED,
            "infrastructure",
            "XX",
            "nsjail or our init did not reach exec, and it was not for want of memory",
            "the jail could not be set up",
            "answered with 500 `jail_failed`",
        ),
        lambda _, jail: (
            not jail.started
            and jail.exec_errno is None
            and jail.ended_by is not Ending.CANCELLED
            # A request may ask for less memory than a jail itself takes: that is its own limit.
            and not oom_killed(jail)
        ),
    ),
    Rule(
        Row(
            Kind.CANCELLED,
            "user",
            "SG",
            "we ended it: the client left or asked, or the daemon is stopping",
            "the execution was cancelled",
        ),
        lambda _, jail: jail.ended_by is Ending.CANCELLED,
    ),
    Rule(
        Row(
            Kind.COMMAND_NOT_FOUND,
            "user",
            "RE",
            "exec failed inside the jail; `exec_errno` says how",
            "the command could not be started",
            "`code` is 127 where there is no such file, else 126, as a shell has it",
        ),
        lambda _, jail: jail.exec_errno is not None,
    ),
    Rule(
        Row(
            Kind.TIMED_OUT,
            "limit",
            "TO",
            "our monotonic deadline fired, or the command ended by itself behind it",
            "the time limit was reached",
        ),
        lambda stage, jail: jail.ended_by is Ending.DEADLINE or overran(stage, jail),
    ),
    Rule(
        Row(
            Kind.OUTPUT_LIMIT,
            "limit",
            "OL",
            "we cut stdout",
            "stdout was cut at the output limit",
            "stderr is cut too, but does not end the program: `truncated` and `message` say so",
        ),
        # A program may write its last and end before it can be killed: which came first is a race,
        # and the same program has to get the same outcome every time.
        lambda _, jail: jail.ended_by is Ending.OUTPUT_LIMIT or overflowed(jail),
    ),
    Rule(
        Row(
            Kind.CPU_EXHAUSTED,
            "limit",
            "TO",
            "we ended it at the CPU limit, or it died by SIGXCPU or SIGKILL with that time used up",
            "the CPU time limit was reached",
            "a SIGXCPU that a program sends itself before that is `signaled`",
        ),
        lambda stage, jail: (
            jail.ended_by is Ending.CPU_LIMIT
            or (
                death_signal(jail.wait_status) in (signal.SIGXCPU, signal.SIGKILL)
                and cpu_used_up(stage, jail)
            )
        ),
    ),
    Rule(
        Row(
            Kind.OUT_OF_MEMORY,
            "limit",
            "SG",
            "the cgroup's oom_kill counter moved, and the command did not exit with 0",
            "the memory limit was reached",
            "a child that was killed and whose parent ends well: `exited`, and the counters tell. "
            "A SIGKILL while the counter stands still is `signaled`",
        ),
        lambda _, jail: oom_killed(jail) and failed(jail),
    ),
    Rule(
        Row(
            Kind.SYSCALL_DENIED,
            "user",
            "SG",
            "death by SIGSYS",
            "a forbidden system call was made",
            "the kernel does not tell the filter's SIGSYS from one that a program sends itself; "
            "either is the program's doing",
        ),
        lambda _, jail: death_signal(jail.wait_status) == signal.SIGSYS,
    ),
    Rule(
        Row(
            Kind.FILE_TOO_LARGE,
            "limit",
            "SG",
            "death by SIGXFSZ",
            "the file size limit was reached",
            "a SIGXFSZ that a program sends itself cannot be told from the kernel's. A program "
            "that ignores the signal (Python does) gets EFBIG and ends as it likes",
        ),
        lambda _, jail: death_signal(jail.wait_status) == signal.SIGXFSZ,
    ),
    Rule(
        Row(
            Kind.PROCESS_LIMIT,
            "limit",
            "RE",
            "the pids controller's event counter moved, and the command did not exit with 0",
            "the process limit was reached",
        ),
        lambda _, jail: pids_denied(jail) and failed(jail),
    ),
    Rule(
        Row(
            Kind.STORAGE_FULL,
            "limit",
            "RE",
            "less than 64 KiB or 64 inodes were left after it, on the disk or of "
            "`RUNNER_WORKSPACE_MAX_BYTES`, and the command did not exit with 0",
            "the storage was full",
            "one that removes what it wrote before it ends leaves nothing to be read: `exited`",
        ),
        lambda stage, jail: stage.storage_full and failed(jail),
    ),
    Rule(
        Row(
            Kind.SIGNALED,
            "user",
            "SG",
            "the wait status, and no limit fired",
        ),
        lambda _, jail: death_signal(jail.wait_status) is not None,
    ),
    Rule(
        Row(
            Kind.EXITED,
            "none",
            None,
            "the wait status; `fault` is `user` where the code is not 0",
            note="whatever the code: 137, 139 and 255 are numbers that a program may choose",
        ),
        lambda _, jail: exit_code(jail.wait_status) is not None,
    ),
)

#: Where no rule holds.
UNKNOWN = Row(
    Kind.UNKNOWN,
    "infrastructure",
    "XX",
    "anything else: the kernel does not say",
    "what ended it is not known",
    "answered with 500 `internal`",
)
