"""The decision itself, over any facts: total, honest about fault, and deaf to what was printed."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jail.facts import Captured, Counters, Ending, Enforcement, Facts
from jail.profile import Limits
from runner.execution.evidence import StageFacts
from runner.execution.outcomes import classify
from runner.execution.rules import MISSING, RULES, UNKNOWN, Kind

LIMITS = Limits(wall_ms=1000, cpu_ms=1000, memory_bytes=1 << 20, pids=8, output_bytes=100)
counts = st.none() | st.integers(0, 3)
#: Raw wait statuses: an exit code, a signal, with and without the core dump flag; and nonsense.
statuses = st.one_of(
    st.none(),
    st.integers(0, 255).map(lambda code: code << 8),
    st.integers(1, 64),
    st.integers(1, 64).map(lambda number: number | 0x80),
    st.integers(0, 0xFFFF),
)
counters = st.builds(
    Counters,
    memory_peak_bytes=counts,
    oom_kills=counts,
    pids_denied=counts,
    cpu_ns=st.none() | st.integers(0, 1 << 40),
)
captured = st.builds(
    lambda kept, more: Captured(kept, len(kept) + more, ""),
    st.binary(max_size=20),
    st.integers(0, 5),
)
logs = st.lists(st.text(max_size=30), max_size=3).map(tuple)
facts = st.builds(
    Facts,
    started=st.booleans(),
    exec_errno=st.none() | st.integers(1, 133),
    wait_status=statuses,
    nsjail_status=statuses,
    nsjail_log=logs,
    ended_by=st.none() | st.sampled_from(Ending),
    wall_ns=st.integers(0, 1 << 40),
    cpu_ns=st.integers(0, 1 << 40),
    memory_peak_bytes=st.integers(0, 1 << 40),
    counters=counters,
    enforcement=st.sampled_from(Enforcement),
    stdout=captured,
    stderr=captured,
    proven_empty=st.booleans(),
    setup_failure=st.none() | st.sampled_from(["nsjail", "cgroup", "cancelled"]),
    before=counters,
)
stages = st.builds(
    StageFacts,
    workspace_present=st.booleans(),
    jail=st.none() | facts,
    limits=st.none() | st.just(LIMITS),
    storage_full=st.booleans(),
)


@settings(deadline=None)
@given(stages)
def test_every_fact_has_a_verdict_that_holds_together(stage: StageFacts) -> None:
    said = classify(stage)
    assert said.retryable is (said.fault == "infrastructure")
    assert (said.status == "XX") is (said.fault == "infrastructure")
    if said.signal_name is not None:
        assert said.code is not None and 128 < said.code <= 255
    if said.retryable:
        assert said.code is None
    if said.kind is Kind.EXITED:
        assert (said.fault == "none") is (said.code == 0)
    if not stage.workspace_present:
        assert said.kind is Kind.WORKSPACE_MISSING


@settings(deadline=None)
@given(facts, captured, captured, logs)
def test_nothing_printed_and_nothing_logged_changes_the_verdict(
    jail: Facts, stdout: Captured, stderr: Captured, log: tuple[str, ...]
) -> None:
    # That bytes were cut is a fact of ours; which bytes they were is not.
    other = replace(
        jail,
        stdout=replace(stdout, bytes_total=len(stdout.kept) + jail.stdout.truncated),
        stderr=replace(stderr, bytes_total=len(stderr.kept) + jail.stderr.truncated),
        nsjail_log=log,
    )
    one, two = (
        classify(StageFacts(workspace_present=True, jail=each, limits=LIMITS))
        for each in (jail, other)
    )
    del one.evidence["nsjail_line"], two.evidence["nsjail_line"]
    assert one == two


@settings(deadline=None)
@given(facts)
def test_a_program_that_ran_and_ended_by_itself_is_never_our_failure(jail: Facts) -> None:
    ran = replace(jail, started=True, exec_errno=None, ended_by=None, wait_status=7 << 8)
    said = classify(StageFacts(workspace_present=True, jail=ran, limits=LIMITS))
    assert said.fault in ("user", "limit")


BLANK = Facts(
    started=True,
    exec_errno=None,
    wait_status=0,
    nsjail_status=0,
    nsjail_log=(),
    ended_by=None,
    wall_ns=1,
    cpu_ns=1,
    memory_peak_bytes=1,
    counters=Counters(oom_kills=0, pids_denied=0),
    enforcement=Enforcement.ENFORCED,
    stdout=Captured(b"", 0, ""),
    stderr=Captured(b"", 0, ""),
    proven_empty=True,
    before=Counters(oom_kills=0, pids_denied=0),
)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"counters": Counters(oom_kills=1)}, Kind.OUT_OF_MEMORY),
        # It had moved before the limits were set: that was not this program.
        ({"counters": Counters(oom_kills=1), "before": Counters(oom_kills=1)}, Kind.SIGNALED),
        ({"counters": Counters(pids_denied=2), "before": Counters()}, Kind.PROCESS_LIMIT),
        ({"counters": Counters()}, Kind.SIGNALED),
        ({"cpu_ns": 1_000_000_000}, Kind.CPU_EXHAUSTED),
        ({"cpu_ns": 999_999_999}, Kind.SIGNALED),
        ({"cpu_ns": 800_000_000, "enforcement": Enforcement.ADVISORY}, Kind.CPU_EXHAUSTED),
        ({"wait_status": None, "nsjail_status": 9}, Kind.UNKNOWN),
        ({"wait_status": None, "ended_by": Ending.SETUP_TIMEOUT}, Kind.UNKNOWN),
        ({"wait_status": None, "started": False}, Kind.JAIL_FAILED),
    ],
)
def test_a_kill_is_what_the_counters_say(change: dict[str, object], kind: Kind) -> None:
    killed = replace(BLANK, wait_status=int(signal.SIGKILL))
    stage = StageFacts(workspace_present=True, jail=replace(killed, **change), limits=LIMITS)
    assert classify(stage).kind is kind


def test_people_are_told_nsjails_last_word_without_where_things_lie() -> None:
    last = "[E] mountPt():235 mount('/var/lib/x/jobs/1', '/mnt/data') /srv/a: No such file"
    jail = replace(BLANK, started=False, wait_status=None, nsjail_log=("first", last))
    line = classify(StageFacts(workspace_present=True, jail=jail)).evidence["nsjail_line"]
    assert line == "[E] mountPt():235 mount('<path>', '<path>') <path>: No such file"


def test_a_full_disk_counts_only_against_a_program_that_failed() -> None:
    full = StageFacts(workspace_present=True, jail=BLANK, limits=LIMITS, storage_full=True)
    assert classify(full).kind is Kind.EXITED
    failed = replace(full, jail=replace(BLANK, wait_status=1 << 8))
    assert classify(failed).kind is Kind.STORAGE_FULL


def test_a_flood_that_ends_before_it_is_killed_is_a_flood_all_the_same() -> None:
    cut = replace(BLANK, stdout=Captured(b"x" * 100, 101, ""))
    killed = replace(cut, wait_status=int(signal.SIGKILL), ended_by=Ending.OUTPUT_LIMIT)
    said = [
        classify(StageFacts(workspace_present=True, jail=jail, limits=LIMITS))
        for jail in (cut, killed)
    ]
    assert {(each.kind, each.code, each.signal_name, each.status) for each in said} == {
        (Kind.OUTPUT_LIMIT, 137, "SIGKILL", "OL")
    }


def test_every_kind_has_its_row_and_no_kind_two() -> None:
    rows = [MISSING, *(rule.row for rule in RULES), UNKNOWN]
    assert sorted(row.kind for row in rows) == sorted(Kind)
