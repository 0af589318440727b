"""What ended a stage: a pure decision over frozen facts, by the table in `rules`."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from jail.facts import Facts
from runner.execution.evidence import (
    Evidence,
    StageFacts,
    death_signal,
    evidence,
    exit_code,
    overflowed,
    overran,
)
from runner.execution.rules import MISSING, RULES, UNKNOWN, Fault, Kind, Row, Status


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision. `code` and `signal_name` are Piston's; None where no process ran."""

    kind: Kind
    fault: Fault
    code: int | None
    signal_name: str | None
    status: Status | None
    message: str | None
    evidence: Evidence

    @property
    def retryable(self) -> bool:
        """Only what the infrastructure did can be expected to go away by itself."""
        return self.fault == "infrastructure"


def classify(stage: StageFacts) -> Verdict:
    """The verdict on one stage. A missing workspace is looked at before everything else."""
    jail = stage.jail
    if not stage.workspace_present or jail is None:
        return _verdict(MISSING, None, None, {"workspace_present": stage.workspace_present})
    row = next((rule.row for rule in RULES if rule.holds(stage, jail)), UNKNOWN)
    told = evidence(stage, jail)
    if row.fault == "infrastructure":
        # No number is the program's own.
        return _verdict(row, None, None, told)
    code, signal_name = _piston_end(stage, jail)
    if row.kind is Kind.EXITED:
        fault: Fault = "none" if code == 0 else "user"
        cut = "stderr was cut at the output limit" if jail.stderr.truncated else None
        row = replace(row, fault=fault, message=cut)
    return _verdict(row, code, signal_name, told)


def _verdict(row: Row, code: int | None, signal_name: str | None, told: Evidence) -> Verdict:
    return Verdict(row.kind, row.fault, code, signal_name, row.status, row.message, told)


def _piston_end(stage: StageFacts, jail: Facts) -> tuple[int | None, str | None]:
    """Piston's `code` and `signal`: 128+n and the name for a death by signal n."""
    if jail.exec_errno is not None:
        # What a shell says: 127 for a command that is not there, 126 for one that cannot run.
        return (127 if jail.exec_errno == 2 else 126), None
    # Where we ended it, or were about to, the number is the same whoever was quicker.
    ours = jail.ended_by is not None or overflowed(jail) or overran(stage, jail)
    code = exit_code(jail.wait_status)
    if code is not None and not ours:
        return code, None
    # Where init died with it, too: SIGKILL.
    number = None if ours else death_signal(jail.wait_status)
    return 128 + (number or signal.SIGKILL), signal_name(number or signal.SIGKILL)


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; real-time signals have no name in POSIX."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
