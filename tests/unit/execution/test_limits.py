"""Settings, then the runtime's row, then the request: each can only lower what it was given."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from image.runtimes import Runtime, RuntimeLimits, RuntimesError, _read_limits
from jail.profile import MEMORY_MIN, Limits
from runner.errors import BadRequest, LimitExceeded
from runner.execution.limits import ASKABLE, ceilings, chosen
from runner.settings import Settings
from runner.wire import ExecuteRequest, RequestFile

RUNTIME = Runtime(
    language="c",
    aliases=(),
    version="1",
    run=("run",),
    compile=("compile",),
    source_suffix=".c",
    env=MappingProxyType({}),
    hello="",
)
SETTINGS = Settings(run_timeout=10.0, compile_timeout=5.0, memory_limit=1 << 30, pids_limit=64)


def asking(**fields: int) -> ExecuteRequest:
    return ExecuteRequest(language="c", files=[RequestFile(content="")], **fields)


def test_without_a_row_the_settings_are_the_ceilings() -> None:
    most = ceilings(RUNTIME, SETTINGS, cpus=2)
    assert most.run == Limits(
        wall_ms=10_000, cpu_ms=20_000, memory_bytes=1 << 30, pids=64, output_bytes=1 << 20
    )
    assert most.compile is not None and most.compile.wall_ms == 5_000


def test_a_row_lowers_and_never_raises() -> None:
    own = RuntimeLimits(run_timeout=2.0, compile_timeout=60.0, memory=4 << 30, pids=8)
    most = ceilings(replace(RUNTIME, limits=own), SETTINGS, cpus=2)
    assert (most.run.wall_ms, most.run.cpu_ms, most.run.pids) == (2_000, 4_000, 8)
    assert most.run.memory_bytes == 1 << 30
    assert most.compile is not None and most.compile.wall_ms == 5_000


def test_a_runtime_that_does_not_compile_has_no_ceilings_for_it() -> None:
    most = ceilings(replace(RUNTIME, compile=None), SETTINGS, cpus=1)
    assert most.compile is None
    assert not [name for name in most.fields() if name.startswith("compile")]


@pytest.mark.parametrize("stage", ["run", "compile"])
@pytest.mark.parametrize("field", ASKABLE)
def test_what_is_asked_is_given_up_to_the_ceiling_and_refused_above(stage: str, field: str) -> None:
    most = ceilings(RUNTIME, SETTINGS, cpus=1)
    ceiling = most.fields()[f"{stage}_{field}"]
    limits = most.of(stage)
    assert limits is not None
    lowest = MEMORY_MIN if field == "memory_limit" else 1
    for asked in (lowest, ceiling):
        given_limits = chosen(asking(**{f"{stage}_{field}": asked}), stage, limits)
        assert asked in (
            given_limits.wall_ms,
            given_limits.cpu_ms,
            given_limits.memory_bytes,
        )
    with pytest.raises(LimitExceeded) as refused:
        chosen(asking(**{f"{stage}_{field}": ceiling + 1}), stage, limits)
    assert refused.value.field == f"{stage}_{field}"


@pytest.mark.parametrize("stage", ["run", "compile"])
def test_less_memory_than_a_jail_starts_with_is_refused(stage: str) -> None:
    limits = ceilings(RUNTIME, SETTINGS, cpus=1).of(stage)
    assert limits is not None
    with pytest.raises(BadRequest) as refused:
        chosen(asking(**{f"{stage}_memory_limit": MEMORY_MIN - 1}), stage, limits)
    assert (refused.value.field, refused.value.reason) == (f"{stage}_memory_limit", "below_floor")


@settings(deadline=None)
@given(st.integers(1, 20_000), st.floats(0.001, 100), st.integers(1, 1 << 40))
def test_no_request_gets_more_than_settings_or_row_allow(
    asked: int, own_timeout: float, own_memory: int
) -> None:
    own = RuntimeLimits(run_timeout=own_timeout, memory=own_memory)
    most = ceilings(replace(RUNTIME, limits=own), SETTINGS, cpus=2).run
    try:
        limits = chosen(asking(run_timeout=asked), "run", most)
    except LimitExceeded:
        assert asked > min(10_000, round(own_timeout * 1000))
        return
    assert limits.wall_ms == asked <= 10_000
    assert limits.memory_bytes == min(1 << 30, own_memory)


def test_a_row_is_read_in_the_units_of_the_settings() -> None:
    row = {"run_timeout": "250ms", "compile_timeout": "1m", "memory": "64MiB", "pids": 3}
    assert _read_limits("c", row) == RuntimeLimits(0.25, 60.0, 64 << 20, 3)


@pytest.mark.parametrize(
    "row", [{"memory": "much"}, {"run_timeout": 5}, {"pids": "3"}, {"pids": 0}, {"cpu": "1s"}]
)
def test_a_row_that_is_not_right_is_refused_by_name(row: dict[str, object]) -> None:
    with pytest.raises(RuntimesError, match=next(iter(row))):
        _read_limits("c", row)
