"""From facts to the wire: rounding, decoding and what counts as success."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from jail.facts import Captured, Counters, Ending, Enforcement, Facts
from jail.profile import Limits
from runner.execution import result
from runner.execution.evidence import StageFacts
from runner.execution.outcomes import classify
from runner.execution.result import StageResult

LIMITS = Limits(wall_ms=1000, cpu_ms=500, memory_bytes=1 << 20, pids=8, output_bytes=100)


def captured(kept: bytes, total: int | None = None) -> Captured:
    digest = hashlib.sha256(kept).hexdigest()
    return Captured(kept, len(kept) if total is None else total, digest)


FACTS = Facts(
    started=True,
    exec_errno=None,
    wait_status=0,
    nsjail_status=0,
    nsjail_log=(),
    ended_by=None,
    wall_ns=1_000_001,
    cpu_ns=1,
    memory_peak_bytes=4096,
    counters=Counters(),
    enforcement=Enforcement.ENFORCED,
    stdout=captured(b""),
    stderr=captured(b""),
    proven_empty=True,
)


def staged(facts: Facts) -> StageResult:
    verdict = classify(StageFacts(workspace_present=True, jail=facts, limits=LIMITS))
    return StageResult(facts, verdict, LIMITS)


def test_times_are_rounded_up_to_whole_milliseconds() -> None:
    wire = result.stage(staged(FACTS))
    assert (wire.wall_time, wire.cpu_time, wire.memory) == (2, 1, 4096)


@pytest.mark.parametrize(
    ("kept", "text"),
    [(b"h\xc3\xa4", "hä"), (b"\xff\xfe", "\ufffd\ufffd"), (b"cut \xf0\x9f\x99", "cut \ufffd")],
)
def test_bytes_that_are_not_utf8_are_replaced(kept: bytes, text: str) -> None:
    assert result.stage(staged(replace(FACTS, stdout=captured(kept)))).stdout == text


def test_either_stream_cut_is_truncated() -> None:
    cut = captured(b"kept", total=100)
    assert result.stage(staged(replace(FACTS, stdout=cut))).truncated
    assert result.stage(staged(replace(FACTS, stderr=cut))).truncated
    assert not result.stage(staged(FACTS)).truncated


def test_only_what_exited_with_zero_has_succeeded() -> None:
    assert staged(FACTS).succeeded
    for failed in (
        replace(FACTS, wait_status=1 << 8),
        replace(FACTS, wait_status=9),
        replace(FACTS, wait_status=None, ended_by=Ending.DEADLINE),
    ):
        assert not staged(failed).succeeded
