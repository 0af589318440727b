"""All that a decision on a stage may rest on, and how it is told to people. Pure.

Nothing here can be set by what a program prints: what it printed is in no field.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from jail.facts import Enforcement, Facts
from jail.profile import Limits

Evidence = dict[str, int | str | bool | None]

#: nsjail's last word, without where things lie on this machine.
_PATH = re.compile(r"/[^\s'\"`,:;()]+")
_LINE_CHARS = 200
#: RLIMIT_CPU counts ticks, and those that another guest took too: it fired after 0.88 s of 1.
ADVISORY_CPU_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class StageFacts:
    """The jail's facts and what was measured around it.

    `workspace_present` was looked at before the jail was to start; `jail` is None when it was not
    started for that reason. `storage_full` is a reading of free space after the run.
    """

    workspace_present: bool
    jail: Facts | None
    limits: Limits | None = None
    storage_full: bool = False


def overflowed(jail: Facts) -> bool:
    """Whether it ended by itself, with more on stdout than is kept."""
    return _ended_by_itself(jail) and jail.stdout.truncated


def overran(stage: StageFacts, jail: Facts) -> bool:
    """Whether it ended by itself, later than it may: it was quicker than our deadline's look."""
    if stage.limits is None:
        return False
    return _ended_by_itself(jail) and jail.wall_ns >= stage.limits.wall_ms * 1_000_000


def _ended_by_itself(jail: Facts) -> bool:
    return jail.ended_by is None and jail.wait_status is not None


def exit_code(wait_status: int | None) -> int | None:
    """The exit code of a raw wait status if the command exited by itself."""
    exited = wait_status is not None and os.WIFEXITED(wait_status)
    return os.WEXITSTATUS(wait_status) if exited and wait_status is not None else None


def death_signal(wait_status: int | None) -> int | None:
    """The signal of a raw wait status if one ended the command."""
    signaled = wait_status is not None and os.WIFSIGNALED(wait_status)
    return os.WTERMSIG(wait_status) if signaled and wait_status is not None else None


def cpu_used_up(stage: StageFacts, jail: Facts) -> bool:
    """Whether the CPU time that was counted reaches the limit."""
    if stage.limits is None:
        return False
    share = 1.0 if jail.enforcement is Enforcement.ENFORCED else ADVISORY_CPU_SHARE
    return jail.cpu_ns >= share * stage.limits.cpu_ms * 1_000_000


def failed(jail: Facts) -> bool:
    """Whether the command itself came to a bad end: a limit that only hurt a child that the command
    survived is evidence, not the outcome."""
    return exit_code(jail.wait_status) != 0


def oom_killed(jail: Facts) -> bool:
    """Whether the kernel killed for memory between the two readings."""
    return _moved(jail.before.oom_kills, jail.counters.oom_kills)


def pids_denied(jail: Facts) -> bool:
    """Whether the kernel refused a task between the two readings."""
    return _moved(jail.before.pids_denied, jail.counters.pids_denied)


def _moved(before: int | None, after: int | None) -> bool:
    """A counter that nobody counts has not moved."""
    return after is not None and after > (before or 0)


def evidence(stage: StageFacts, jail: Facts) -> Evidence:
    """What the verdict rests on, with each limit beside what was used of it. Times in ns, as read.

    `…_before` was read when the limits were set, before nsjail did anything in the group.
    """
    limits = stage.limits
    return {
        "wait_status": jail.wait_status,
        "exec_errno": jail.exec_errno,
        "nsjail_status": jail.nsjail_status,
        "nsjail_line": _told(jail.nsjail_log),
        "ended_by": jail.ended_by.value if jail.ended_by else None,
        "setup_failure": jail.setup_failure,
        "wall_ns": jail.wall_ns,
        "wall_limit_ms": limits.wall_ms if limits else None,
        "cpu_ns": jail.cpu_ns,
        "cpu_limit_ms": limits.cpu_ms if limits else None,
        "oom_kills_before": jail.before.oom_kills,
        "oom_kills": jail.counters.oom_kills,
        "pids_denied_before": jail.before.pids_denied,
        "pids_denied": jail.counters.pids_denied,
        "storage_full": stage.storage_full,
        "enforcement": jail.enforcement.value,
        "proven_empty": jail.proven_empty,
    }


def _told(nsjail_log: tuple[str, ...]) -> str | None:
    """For people; that it is here decides nothing."""
    return _PATH.sub("<path>", nsjail_log[-1])[:_LINE_CHARS] if nsjail_log else None
