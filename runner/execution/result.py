"""From facts and verdicts to the wire's result. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jail.facts import Captured, Facts
from jail.profile import Limits
from runner import wire
from runner.execution.outcomes import Verdict


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage that ran: what was measured and what it means."""

    facts: Facts
    verdict: Verdict
    limits: Limits
    #: Both streams in the order of their arrival.
    output: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether the next stage may follow."""
        return self.verdict.fault == "none"


def stage(result: StageResult) -> wire.Stage:
    """The wire form. Times are rounded up to whole ms: something that ran took time."""
    facts, verdict = result.facts, result.verdict
    return wire.Stage(
        stdout=_text(facts.stdout),
        stderr=_text(facts.stderr),
        output=result.output,
        code=verdict.code,
        signal=verdict.signal_name,
        status=verdict.status,
        message=verdict.message,
        memory=facts.memory_peak_bytes,
        cpu_time=_milliseconds(facts.cpu_ns),
        wall_time=_milliseconds(facts.wall_ns),
        truncated=facts.stdout.truncated or facts.stderr.truncated,
        outcome=outcome(verdict),
        limits=_limits(result.limits),
        streams=wire.Streams(stdout=_stream(facts.stdout), stderr=_stream(facts.stderr)),
    )


def outcome(verdict: Verdict) -> wire.Outcome:
    """The wire form of a verdict."""
    return wire.Outcome(
        kind=verdict.kind.value,
        fault=verdict.fault,
        retryable=verdict.retryable,
        evidence=verdict.evidence,
    )


def _limits(limits: Limits) -> wire.StageLimits:
    return wire.StageLimits(
        timeout=limits.wall_ms,
        cpu_time=limits.cpu_ms,
        memory_limit=limits.memory_bytes,
        pids=limits.pids,
        output=limits.output_bytes,
        open_files=limits.open_files,
        file_size=limits.file_size_bytes,
    )


def _stream(stream: Captured) -> wire.StreamInfo:
    return wire.StreamInfo(
        bytes_total=stream.bytes_total, bytes_kept=len(stream.kept), sha256=stream.sha256
    )


def _text(stream: Captured) -> str:
    """UTF-8; bytes that are not, and a sequence that the cut went through, become U+FFFD."""
    return stream.kept.decode("utf-8", "replace")


def _milliseconds(nanoseconds: int) -> int:
    return -(-nanoseconds // 1_000_000)
