"""Ending a jail ends everything in it, whatever it has done to stay."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace

import pytest

from jail.facts import Ending, Facts
from jail.host import JailHost
from jail.process import Jail
from tests.jail.conftest import UID, ProfileMaker, Runner, processes_of

#: How long after its deadline a jail may take to be gone.
PROMPT_S = 1.0

STUBBORN = {
    "ignores every signal": "trap '' TERM INT HUP QUIT; while :; do sleep 1; done",
    "stops itself": "kill -STOP $$",
    "stops its whole group": "sleep 60 & kill -STOP 0",
    "leaves a session of its own": "setsid sh -c 'setsid sleep 60 & sleep 60' & sleep 60",
    "forks without end": "f() { f & f & }; f; sleep 60",
}


@pytest.mark.parametrize("name", STUBBORN)
async def test_a_stubborn_program_is_gone_soon_after_its_deadline(sh: Runner, name: str) -> None:
    begun = time.monotonic()
    facts: Facts = await sh(STUBBORN[name], wall_ms=300)
    assert time.monotonic() - begun < 0.3 + PROMPT_S + 0.5
    assert facts.ended_by is Ending.DEADLINE and facts.proven_empty


async def test_a_daemon_left_behind_does_not_keep_us_waiting(sh: Runner) -> None:
    facts: Facts = await sh("(setsid sleep 60 &) & echo done; exit 4")
    assert facts.wait_status == 4 << 8 and facts.stdout.kept == b"done\n"
    assert facts.wall_ns < 2e9 and facts.proven_empty


async def test_a_child_that_holds_stdout_does_not_keep_us_waiting(sh: Runner) -> None:
    facts: Facts = await sh("sleep 60 & exit 0")
    assert facts.wait_status == 0 and facts.wall_ns < 2e9


async def test_kill_0_reaches_the_script_and_not_init(sh: Runner) -> None:
    facts: Facts = await sh("trap 'echo caught; exit 5' TERM; kill 0; sleep 3")
    assert facts.wait_status == 5 << 8 and facts.stdout.kept == b"caught\n"


async def test_orphans_are_reaped_while_the_command_runs(sh: Runner) -> None:
    facts: Facts = await sh(
        "for i in 1 2 3 4 5 6 7 8; do (true & true); done; sleep 0.2;"
        " grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"
    )
    assert facts.stdout.kept.strip() == b"0"


async def test_killing_all_it_can_see_leaves_init_alive(sh: Runner) -> None:
    facts: Facts = await sh("trap '' TERM; kill -TERM -1; kill -9 1; kill -STOP 1; echo alive")
    assert facts.stdout.kept == b"alive\n" and facts.wait_status == 0


async def test_cancelling_the_waiter_ends_the_jail_before_it_goes_on(
    host: JailHost, profile: ProfileMaker
) -> None:
    running = asyncio.Event()
    jail = Jail(host, profile("sleep", "60"), on_started=running.set)
    task = asyncio.create_task(jail.run())
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_of(UID) == []
    assert not host.running


async def test_cancelling_twice_still_waits_for_the_end(
    host: JailHost, profile: ProfileMaker
) -> None:
    running = asyncio.Event()
    task = asyncio.create_task(Jail(host, profile("sleep", "60"), on_started=running.set).run())
    await running.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_of(UID) == []


async def test_cancelling_at_any_moment_leaves_nothing(
    host: JailHost, profile: ProfileMaker
) -> None:
    for step in range(25):
        task = asyncio.create_task(Jail(host, profile("sleep", "60")).run())
        await asyncio.sleep(step * 0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert processes_of(UID) == []


async def test_cancelling_leaves_nothing_where_no_group_can_be_killed_as_one(
    other_runtime_dir: str, profile: ProfileMaker
) -> None:
    """As in a container on a machine with cgroup v1 alone."""
    host = JailHost.open(
        nsjail=None, runtime_dir=other_runtime_dir, owner=f"v1-{UID}", uid=UID, gid=UID
    )
    parents = host.cgroups.parents
    host.cgroups.parents = replace(parents, unified=None)
    try:
        await test_cancelling_at_any_moment_leaves_nothing(host, profile)
    finally:
        host.cgroups.parents = parents
        await host.aclose()


async def test_ending_from_outside_is_a_fact(host: JailHost, profile: ProfileMaker) -> None:
    running = asyncio.Event()
    jail = Jail(host, profile("sleep", "60"), on_started=running.set)
    task = asyncio.create_task(jail.run())
    await running.wait()
    jail.end(Ending.CANCELLED)
    jail.end(Ending.DEADLINE)
    facts = await task
    assert facts.ended_by is Ending.CANCELLED and facts.proven_empty


async def test_ending_before_the_start_starts_nothing(
    host: JailHost, profile: ProfileMaker
) -> None:
    jail = Jail(host, profile("touch", "/mnt/data/made"))
    jail.end(Ending.CANCELLED)
    facts = await jail.run()
    assert (facts.started, facts.ended_by) == (False, Ending.CANCELLED)
    assert facts.setup_failure == "cancelled" and facts.proven_empty


async def test_fifty_jails_ended_or_cancelled_leak_no_descriptor(
    host: JailHost, profile: ProfileMaker
) -> None:
    await Jail(host, profile("true")).run()
    before = os.listdir("/proc/self/fd")
    for number in range(50):
        task = asyncio.create_task(Jail(host, profile("sleep", "0")).run())
        if number % 2:
            await asyncio.sleep(0.001 * number)
            task.cancel()
        await asyncio.wait({task})
    assert len(os.listdir("/proc/self/fd")) == len(before)


async def test_closing_the_host_ends_all_jails(
    other_runtime_dir: str, profile: ProfileMaker
) -> None:
    host = JailHost.open(
        nsjail=None,
        runtime_dir=other_runtime_dir,
        owner=f"closing-{UID}",
        uid=UID,
        gid=UID,
    )
    tasks = [asyncio.create_task(Jail(host, profile("sleep", "60")).run()) for _ in range(3)]
    await asyncio.sleep(0.1)
    await host.aclose()
    facts = await asyncio.gather(*tasks)
    assert {each.ended_by for each in facts} == {Ending.CANCELLED}
    assert processes_of(UID) == []
    assert not any(os.path.exists(path) for path in host.cgroups.parents.directories)
