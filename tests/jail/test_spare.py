"""nsjails started ahead: the same jail, sooner; none is used twice and none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jail.host import JailHost
from jail.process import Jail
from tests.jail.conftest import UID, ProfileMaker, settled


@pytest.fixture
async def warm_host(other_runtime_dir: str) -> AsyncIterator[JailHost]:
    host = JailHost.open(
        nsjail=None,
        runtime_dir=other_runtime_dir,
        owner=f"spares-{UID}",
        uid=UID,
        gid=UID,
        spares=2,
    )
    await host.spares.full()
    yield host
    await host.aclose()
    assert not any(os.path.exists(path) for path in host.cgroups.parents.directories)


def spare_pids(host: JailHost) -> list[int]:
    return [spare.pid for spare in host.spares._ready]


async def test_a_spare_runs_what_a_fresh_start_would(
    warm_host: JailHost, profile: ProfileMaker
) -> None:
    pids = spare_pids(warm_host)
    assert len(pids) == 2
    facts = await Jail(warm_host, profile("sh", "-c", "cat; exit 3", stdin=b"in")).run()
    assert facts.wait_status == 3 << 8 and facts.stdout.kept == b"in"
    assert facts.proven_empty and pids[0] not in spare_pids(warm_host)
    await warm_host.spares.full()
    assert len(spare_pids(warm_host)) == 2


async def test_the_limits_of_a_spare_are_those_of_its_profile(
    warm_host: JailHost, profile: ProfileMaker
) -> None:
    code = "block = bytearray(100 << 20); print(len(block))"
    python = ("/usr/bin/python3", "-I", "-S", "-c", code)
    enough = await Jail(warm_host, profile(*python, memory_bytes=200 << 20)).run()
    short = await Jail(warm_host, profile(*python, memory_bytes=64 << 20)).run()
    assert enough.wait_status == 0 and short.counters.oom_kills == 1


async def test_a_spare_that_was_killed_is_replaced(
    warm_host: JailHost, profile: ProfileMaker
) -> None:
    for pid in spare_pids(warm_host):
        os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(0.05)
    facts = await Jail(warm_host, profile("true")).run()
    assert facts.wait_status == 0 and facts.proven_empty


async def test_more_jails_than_spares_run_all_the_same(
    warm_host: JailHost, profile: ProfileMaker
) -> None:
    runs = (Jail(warm_host, profile("sh", "-c", f"exit {n}")).run() for n in range(6))
    facts = await asyncio.gather(*runs)
    assert [each.wait_status for each in facts] == [n << 8 for n in range(6)]


async def test_a_spare_that_cannot_be_made_is_not_a_failure(
    warm_host: JailHost, profile: ProfileMaker
) -> None:
    warm_host.nsjail = None
    await Jail(warm_host, profile("true")).run()
    await Jail(warm_host, profile("true")).run()
    facts = await Jail(warm_host, profile("true")).run()
    assert facts.setup_failure == "nsjail_missing"


async def test_dropped_spares_are_counted_and_made_anew(
    warm_host: JailHost, profile: ProfileMaker
) -> None:
    old = spare_pids(warm_host)
    assert await warm_host.drop_warmed() == 2
    await warm_host.spares.full()
    assert len(spare_pids(warm_host)) == 2 and not set(old) & set(spare_pids(warm_host))
    assert (await Jail(warm_host, profile("true")).run()).wait_status == 0


async def test_closing_ends_the_spares(other_runtime_dir: str) -> None:
    host = JailHost.open(
        nsjail=None,
        runtime_dir=other_runtime_dir,
        owner=f"closed-{UID}",
        uid=UID,
        gid=UID,
        spares=3,
    )
    host.spares.refill()
    await asyncio.sleep(0.005)
    await host.aclose()
    assert settled(_waiting_nsjails, 0) == 0
    assert not any(os.path.exists(path) for path in host.cgroups.parents.directories)


def _waiting_nsjails() -> int:
    """Our children that are nsjail."""
    found = 0
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        found += "--log_fd" in Path(f"/proc/{child}/cmdline").read_text()
    return found
