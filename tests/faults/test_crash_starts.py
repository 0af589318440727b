"""Daemons that are killed while they start, or while they make a session's first workspace.

The start that follows has to make of the disk what the first would have, had it not been stopped.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.boothooks import hooks
from tests.faults.crash_operations import OPERATIONS, World, make_world
from tests.faults.crashlab import (
    MARKS,
    SESSION,
    Behaviour,
    Death,
    Held,
    Seen,
    assert_clean,
    counted,
    die,
    laboratory,
    next_turn,
)
from tests.faults.test_crash_matrix import EVERY, numbers
from tests.harness import Daemon, Reply
from tests.trap.trap import KILL, At, Stopped, Trap, inside

pytestmark = MARKS

#: `runtime/` is removed and made again by each start, hundreds of times the same few calls.
RUNTIME_POINTS = 40


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    with laboratory() as lab:
        yield await make_world(lab, set())


def first(name: str, *, paths: int = 1, below: str = "") -> Callable[[Stopped], bool]:
    """Calls of that name, with so many paths, the first of them there."""

    def counts(stopped: Stopped) -> bool:
        there = stopped.paths[0].startswith(below)
        return stopped.name == name and len(stopped.paths) == paths and there

    return counts


@dataclass(frozen=True, slots=True)
class Left:
    """What an earlier daemon left, and what any start has to make of it.

    `operation`, `counts`: in which it was killed, and at the first of which calls.
    """

    state: str
    dirty: str | None = None
    operation: str = ""
    counts: Callable[[Stopped], bool] = counted


LEFT = {
    "nothing at all": Left("unbound"),
    "a whole session": Left("ready"),
    "nobody's workspace": Left("unbound"),
    "an archive that was not put in place": Left(
        "fresh", operation="restore", counts=first("renameat2", paths=2)
    ),
    "an archive that was, and no record of it": Left(
        "fresh", operation="restore", counts=first("fsync")
    ),
    "half of a request's inputs": Left(
        "dirty", "priming", "execute", first("renameat", paths=2, below="staging")
    ),
    "half of a wipe": Left(
        "dirty", "terminated", "terminate", first("unlinkat", below="workspace/d")
    ),
}
#: Calls that any of these starts makes.
FEWEST_CALLS = 30


async def leave(world: World, name: str, root: Path) -> None:
    """Makes the data root as it was left."""
    if name == "nothing at all":
        return
    left = LEFT[name]
    with Trap(root) as trap:
        daemon = world.lab.daemon(root, trap)
        await daemon.start(ready=False)
        await world.reset(daemon)
        if not left.operation:
            await daemon.kill()
        else:
            run = OPERATIONS[left.operation].run
            death = await die(trap, daemon, 1, lambda each: run(world, each), counts=left.counts)
            assert death.at is not None
    if name == "nobody's workspace":
        (root / "state/session.json").unlink()


async def found(world: World, root: Path, trap: Trap | None = None) -> tuple[Seen, Behaviour]:
    """What a start makes of it, and what comes of that."""
    daemon = world.lab.daemon(root, trap)
    await daemon.start(ready=False)
    try:
        if trap is not None:
            trap.set(None)
        assert_clean(daemon)
        seen = await world.lab.look(daemon)
        return seen, await next_turn(daemon)
    finally:
        await daemon.kill()


async def killed_start(world: World, root: Path, number: int, counts: object) -> At:
    """A start that ends before its `number`th call."""
    at = At(number, KILL, counts=counts)  # type: ignore[arg-type]
    with Trap(root) as trap:
        trap.set(at)
        daemon = world.lab.daemon(root, trap)
        with contextlib.suppress(RuntimeError):
            await daemon.start(ready=False)
        await daemon.kill()
        assert trap.empty()
    return at


@pytest.mark.parametrize("name", LEFT)
async def test_a_start_that_is_killed_on_any_call_is_made_up_for_by_the_next(
    world: World, name: str
) -> None:
    original = world.lab.top / name.replace(" ", "-").replace("'", "")
    await leave(world, name, original)
    copy = original.with_name("copy")

    def fresh() -> Path:
        subprocess.run(["rm", "-rf", str(copy)], check=True)
        if original.exists():
            subprocess.run(["cp", "-a", str(original), str(copy)], check=True)
        return copy

    if not EVERY:
        for number in numbers(FEWEST_CALLS):
            await killed_start(world, fresh(), number, counted)
            assert_made_up_for(name, (await found(world, copy))[0], f"killed at {number}")
        return
    whole = At(0, 0, counts=counted)
    with Trap(fresh()) as trap:
        trap.set(whole)
        wanted = await found(world, copy, trap)
    assert_made_up_for(name, wanted[0], "not killed")
    for number in numbers(len(whole.seen)):
        await killed_start(world, fresh(), number, counted)
        assert await found(world, copy) == wanted, f"killed at {number}: {whole.seen[number - 1]}"
    print(f"\n{name}: {len(whole.seen)} calls, always {wanted[0].state} {wanted[0].dirty}")
    if name != "a whole session":
        return
    runtime = inside("runtime")
    calls = len((await killed_start(world, fresh(), 0, runtime)).seen)
    for number in range(1, calls, calls // RUNTIME_POINTS):
        await killed_start(world, fresh(), number, runtime)
        assert await found(world, copy) == wanted, f"killed at {number} in runtime/"
    print(f"{calls} calls in runtime/, {RUNTIME_POINTS} of them died on")


def assert_made_up_for(name: str, seen: Seen, when: str) -> None:
    """The state that every start makes of it."""
    assert (seen.state, seen.dirty) == (LEFT[name].state, LEFT[name].dirty), when


BOOTS = {
    "10-first": "echo first > /mnt/data/first",
    "20-second": "echo second >> /mnt/data/second.new; mv /mnt/data/second.new /mnt/data/second",
}


async def test_a_boot_that_is_killed_on_any_call_is_run_again(world: World) -> None:
    directory = hooks(world.lab.top / "boot.d", BOOTS)
    world.lab.environ["RUNNER_BOOT_HOOKS"] = directory

    async def boot(daemon: Daemon) -> Reply:
        return await daemon.request("POST", "/session/boot", session=SESSION)

    async def booted(number: int, root: Path) -> Death:
        with Trap(root) as trap:
            daemon = world.lab.daemon(root, trap)
            await daemon.start(ready=False)
            death = await die(trap, daemon, number, boot)
            assert trap.empty()
        return death

    try:
        await _every_boot(world, booted)
    finally:
        del world.lab.environ["RUNNER_BOOT_HOOKS"]


async def _every_boot(world: World, booted: Callable[[int, Path], Awaitable[Death]]) -> None:
    top = world.lab.top
    whole = await booted(0, top / "booted")
    seen, turn = await found(world, top / "booted")
    assert (seen.state, set(seen.held.files)) == ("ready", {"first", "second"})
    states = set()
    for number in numbers(whole.calls):
        root = top / f"booted-{number}"
        death = await booted(number, root)
        after, after_turn = await found(world, root)
        assert after_turn == turn, f"killed at {number}: {death}"
        assert after.state in ("unbound", "fresh", "ready") and after.dirty is None
        # A hook is the image's program: what of it was done is its own affair.
        assert set(after.held.files) <= {"first", "second", "second.new"}
        if after.state != "fresh":
            whole_state = seen.held if after.state == "ready" else Held({}, {}, {})
            assert after.held == whole_state, f"killed at {number}: {death}"
        states.add(after.state)
        subprocess.run(["rm", "-rf", str(root)], check=True)
    print(f"\nboot: {whole.calls} calls, found {sorted(states)}")
