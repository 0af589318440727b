"""From facts and verdicts to the wire's result. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jail.facts import Captured, Facts
from runner import wire
from runner.execution.outcomes import Verdict


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage that ran: what was measured and what it means."""

    facts: Facts
    verdict: Verdict

    @property
    def succeeded(self) -> bool:
        """Whether the next stage may follow."""
        return self.verdict.fault == "none"


def stage(result: StageResult) -> wire.Stage:
    """The wire form. Times are rounded up to whole ms: something that ran took time."""
    facts, verdict = result.facts, result.verdict
    stdout, stderr = _text(facts.stdout), _text(facts.stderr)
    return wire.Stage(
        stdout=stdout,
        stderr=stderr,
        # Piston interleaves the two as it reads them; by which of two pipes was read first nothing
        # true can be said of when they were written, so stderr follows stdout.
        output=stdout + stderr,
        code=verdict.code,
        signal=verdict.signal_name,
        status=verdict.status,
        message=verdict.message,
        memory=facts.memory_peak_bytes,
        cpu_time=_milliseconds(facts.cpu_ns),
        wall_time=_milliseconds(facts.wall_ns),
        truncated=facts.stdout.truncated or facts.stderr.truncated,
        outcome=outcome(verdict),
    )


def outcome(verdict: Verdict) -> wire.Outcome:
    """The wire form of a verdict."""
    return wire.Outcome(
        kind=verdict.kind.value,
        fault=verdict.fault,
        retryable=verdict.retryable,
        evidence=verdict.evidence,
    )


def _text(stream: Captured) -> str:
    """UTF-8; bytes that are not, and a sequence that the cut went through, become U+FFFD."""
    return stream.kept.decode("utf-8", "replace")


def _milliseconds(nanoseconds: int) -> int:
    return -(-nanoseconds // 1_000_000)
