"""Freezing on each kind of hierarchy that this machine has."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jail.cgroup import Cgroup, Cgroups
from jail.freeze import Freeze
from jail.hierarchy import Parents, read_mounted

NAME = f"sandbox-runner-freeze-test.{os.getpid()}"


def _parents() -> dict[str, Parents]:
    found = {}
    for hierarchy in read_mounted():
        if hierarchy.is_v2:
            found["v2"] = Parents(unified=hierarchy.own_group)
        elif "freezer" in hierarchy.controllers:
            found["v1"] = Parents(freezer=hierarchy.own_group)
    return found


PARENTS = _parents()


@pytest.fixture(params=sorted(PARENTS))
def sleeper(request: pytest.FixtureRequest) -> Iterator[tuple[Cgroup, subprocess.Popen[bytes]]]:
    """A process in a group of its own."""
    group = Cgroups(PARENTS[request.param], enforcement=None).create(None)  # type: ignore[arg-type]
    process = subprocess.Popen(["sleep", "60"])
    for procs in group.open_procs():
        os.write(procs, str(process.pid).encode())
        os.close(procs)
    yield group, process
    group.set_frozen(False)
    process.kill()
    process.wait()
    assert group.remove()


def test_a_group_is_frozen_and_thawed(
    sleeper: tuple[Cgroup, subprocess.Popen[bytes]],
) -> None:
    group, _ = sleeper
    freeze = Freeze(group)
    assert not group.is_frozen()
    assert freeze.begin()
    assert group.is_frozen()
    freeze.end()
    assert not group.is_frozen()


def test_a_kill_reaches_a_frozen_process(
    sleeper: tuple[Cgroup, subprocess.Popen[bytes]],
) -> None:
    group, process = sleeper
    freeze = Freeze(group)
    assert freeze.begin()
    group.kill()
    assert process.wait(timeout=5) == -9
    freeze.end()


async def test_a_freeze_that_was_given_up_never_begins(
    sleeper: tuple[Cgroup, subprocess.Popen[bytes]],
) -> None:
    group, _ = sleeper
    freeze = Freeze(group)
    freeze.end()
    assert not await asyncio.to_thread(freeze.begin)
    assert not group.is_frozen()


def test_without_a_freezer_it_says_so(tmp_path: Path) -> None:
    group = Cgroup("none", replace(PARENTS[min(PARENTS)], unified=None, freezer=None))
    assert not Freeze(group).begin()


def test_the_watchdog_lets_go_of_what_was_forgotten(
    sleeper: tuple[Cgroup, subprocess.Popen[bytes]],
) -> None:
    group, _ = sleeper
    freeze = Freeze(group, limit_s=0.1)
    assert freeze.begin()
    deadline = time.monotonic() + 5
    while group.is_frozen():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # Whoever froze it comes back too late: nothing is frozen again.
    freeze.end()
    assert not group.is_frozen()
