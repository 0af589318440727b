"""What ended a stage: a pure decision over frozen facts.

The order of the rules is the order of the table; the first that holds decides. No rule reads what
the program printed, and none reads a message: nsjail's log is evidence for people only.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from jail.facts import Ending, Facts

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
class StageFacts:
    """All that a decision may rest on: the jail's facts and what was measured around it.

    `workspace_present` was looked at before the jail was to start; `jail` is None when it was not
    started for that reason. `storage_full` is a reading of free space after the run.
    """

    workspace_present: bool
    jail: Facts | None
    cpu_limit_ms: int
    storage_full: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision. `code` and `signal_name` are Piston's; None where no process ran."""

    kind: Kind
    fault: Fault
    code: int | None
    signal_name: str | None
    status: Status | None
    message: str | None
    evidence: dict[str, int | str | bool | None]

    @property
    def retryable(self) -> bool:
        """Only what the infrastructure did can be expected to go away by itself."""
        return self.fault == "infrastructure"


def exit_code(wait_status: int | None) -> int | None:
    """The exit code of a raw wait status if the command exited by itself."""
    return (
        os.WEXITSTATUS(wait_status)
        if wait_status is not None and os.WIFEXITED(wait_status)
        else None
    )


def death_signal(wait_status: int | None) -> int | None:
    """The signal of a raw wait status if one ended the command."""
    return (
        os.WTERMSIG(wait_status)
        if wait_status is not None and os.WIFSIGNALED(wait_status)
        else None
    )


def _failed(jail: Facts) -> bool:
    """Whether the command itself came to a bad end: a limit that only hurt a child that the command
    survived is evidence, not the outcome."""
    return exit_code(jail.wait_status) != 0


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    kind: Kind
    fault: Fault
    status: Status | None
    decided_by: str
    holds: Callable[[StageFacts, Facts], bool]
    message: str | None = None


RULES: tuple[Rule, ...] = (
    Rule(
        Kind.JAIL_FAILED,
        "infrastructure",
        "XX",
        "nsjail or our init did not reach exec",
        lambda _, jail: (
            not jail.started and jail.exec_errno is None and jail.ended_by is not Ending.CANCELLED
        ),
        "the jail could not be set up",
    ),
    Rule(
        Kind.CANCELLED,
        "user",
        "SG",
        "we ended it: the client left or asked, or the daemon is stopping",
        lambda _, jail: jail.ended_by is Ending.CANCELLED,
        "the execution was cancelled",
    ),
    Rule(
        Kind.COMMAND_NOT_FOUND,
        "user",
        "RE",
        "exec failed inside the jail",
        lambda _, jail: jail.exec_errno is not None,
        "the command could not be started",
    ),
    Rule(
        Kind.TIMED_OUT,
        "limit",
        "TO",
        "our monotonic deadline fired",
        lambda _, jail: jail.ended_by is Ending.DEADLINE,
        "the time limit was reached",
    ),
    Rule(
        Kind.OUTPUT_LIMIT,
        "limit",
        "OL",
        "we cut the stream",
        lambda _, jail: jail.ended_by is Ending.OUTPUT_LIMIT,
        "stdout was cut at the output limit",
    ),
    Rule(
        Kind.CPU_EXHAUSTED,
        "limit",
        "TO",
        "we ended it at the CPU limit, or it died by SIGXCPU or SIGKILL with its CPU time used up",
        lambda stage, jail: (
            jail.ended_by is Ending.CPU_LIMIT
            or (
                death_signal(jail.wait_status) in (signal.SIGXCPU, signal.SIGKILL)
                and jail.cpu_ns >= stage.cpu_limit_ms * 1_000_000
            )
        ),
        "the CPU time limit was reached",
    ),
    Rule(
        Kind.OUT_OF_MEMORY,
        "limit",
        "SG",
        "the cgroup's oom_kill counter moved and the command did not exit with 0",
        lambda _, jail: bool(jail.counters.oom_kills) and _failed(jail),
        "the memory limit was reached",
    ),
    Rule(
        Kind.SYSCALL_DENIED,
        "user",
        "SG",
        "SIGSYS",
        lambda _, jail: death_signal(jail.wait_status) == signal.SIGSYS,
        "a forbidden system call was made",
    ),
    Rule(
        Kind.FILE_TOO_LARGE,
        "limit",
        "SG",
        "SIGXFSZ",
        lambda _, jail: death_signal(jail.wait_status) == signal.SIGXFSZ,
        "the file size limit was reached",
    ),
    Rule(
        Kind.PROCESS_LIMIT,
        "limit",
        "RE",
        "the pids controller's event counter moved and the command did not exit with 0",
        lambda _, jail: bool(jail.counters.pids_denied) and _failed(jail),
        "the process limit was reached",
    ),
    Rule(
        Kind.STORAGE_FULL,
        "limit",
        "RE",
        "no free space or inode was left and the command did not exit with 0",
        lambda stage, jail: stage.storage_full and _failed(jail),
        "the storage was full",
    ),
    Rule(
        Kind.SIGNALED,
        "user",
        "SG",
        "wait status, and no limit fired",
        lambda _, jail: death_signal(jail.wait_status) is not None,
    ),
    Rule(
        Kind.EXITED,
        "none",
        None,
        "wait status; fault is user where the code is not 0",
        lambda _, jail: exit_code(jail.wait_status) is not None,
    ),
)


def classify(stage: StageFacts) -> Verdict:
    """The verdict on one stage. A missing workspace is looked at before everything else."""
    if not stage.workspace_present or stage.jail is None:
        return Verdict(
            Kind.WORKSPACE_MISSING,
            "infrastructure",
            None,
            None,
            "XX",
            "the workspace is gone",
            {"workspace_present": stage.workspace_present},
        )
    jail = stage.jail
    evidence = _evidence(stage, jail)
    rule = next((rule for rule in RULES if rule.holds(stage, jail)), None)
    if rule is None:
        return Verdict(
            Kind.UNKNOWN, "infrastructure", None, None, "XX", "what ended it is not known", evidence
        )
    code, signal_name = _piston_end(jail)
    # A plain exit has no status, whatever its code: Piston itself says RE of it, but the control
    # planes that drive this wire were recorded with null and read the field.
    fault: Fault = "user" if rule.kind is Kind.EXITED and code != 0 else rule.fault
    message = rule.message
    if rule.kind is Kind.EXITED and jail.stderr.truncated:
        message = "stderr was cut at the output limit"
    return Verdict(rule.kind, fault, code, signal_name, rule.status, message, evidence)


def _piston_end(jail: Facts) -> tuple[int | None, str | None]:
    """Piston's `code` and `signal`: 128+n and the name for a death by signal n."""
    if jail.exec_errno is not None:
        # What a shell says: 127 for a command that is not there, 126 for one that cannot run.
        return (127 if jail.exec_errno == 2 else 126), None
    code = exit_code(jail.wait_status)
    if code is not None and jail.ended_by is None:
        return code, None
    # Where we ended it, or init died with it, there is no wait status: it was SIGKILL.
    number = death_signal(jail.wait_status) or signal.SIGKILL
    return 128 + number, signal_name(number)


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; real-time signals have no name in POSIX."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _evidence(stage: StageFacts, jail: Facts) -> dict[str, int | str | bool | None]:
    return {
        "wait_status": jail.wait_status,
        "exec_errno": jail.exec_errno,
        "nsjail_status": jail.nsjail_status,
        "ended_by": jail.ended_by.value if jail.ended_by else None,
        "setup_failure": jail.setup_failure,
        "oom_kills": jail.counters.oom_kills,
        "pids_denied": jail.counters.pids_denied,
        "cpu_ns": jail.cpu_ns,
        "cpu_limit_ms": stage.cpu_limit_ms,
        "storage_full": stage.storage_full,
        "enforcement": jail.enforcement.value,
        "proven_empty": jail.proven_empty,
    }
