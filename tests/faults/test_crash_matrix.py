"""The crash matrix: the daemon is killed at every system call with which it changes its files.

The whole of it is `make crash`; the suite takes a few points of each operation, other ones each
day. What is promised where: docs/crash-consistency.md.
"""

from __future__ import annotations

import asyncio
import collections
import os
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.faults.crash_operations import (
    OPERATIONS,
    PUSHED,
    SESSION,
    Operation,
    World,
    expected_turn,
    judge,
    make_world,
    terminate,
)
from tests.faults.crashlab import (
    MARKS,
    Death,
    Seen,
    assert_clean,
    counted,
    die,
    laboratory,
    next_turn,
    push,
    reference,
)
from tests.harness import Daemon
from tests.trap.trap import At, Trap

pytestmark = MARKS

#: Of the calls of each operation every one is died on, or this many.
EVERY = os.environ.get("CRASH_POINTS") == "all"
POINTS = 1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def story() -> AsyncIterator[Story]:
    names = {outcome.name for each in OPERATIONS.values() for outcome in each.outcomes}
    with laboratory() as lab:
        told = Story(await make_world(lab, names))
        try:
            yield told
        finally:
            await told.end()


def numbers(calls: int) -> list[int]:
    """Which of so many calls are died on; another day has others."""
    if EVERY:
        return list(range(1, calls + 1))
    step = max(calls // POINTS, 1)
    today = int(time.time() // 86400) * 7
    return [today % step + 1 + step * number for number in range(min(POINTS, calls))]


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_daemon_killed_on_any_call_leaves_the_old_or_the_new(
    story: Story, name: str
) -> None:
    operation = OPERATIONS[name]
    calls = await story.count(operation)
    for number in numbers(calls):
        await story.point(operation, number)
    print(f"\n{name}: {calls} calls, found {dict(story.found)}")
    story.found.clear()
    failures, story.failures = story.failures, []
    assert not failures, "\n".join(failures)


class Story:
    """Daemons on one data root, each killed in an operation, each starting after the last."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._roots = 0
        self._trap: Trap | None = None
        self._daemon: Daemon | None = None
        self.found: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []

    async def count(self, operation: Operation) -> int:
        """How many calls it is to its end, and to what it still does after its answer."""
        daemon, trap = await self._ready()
        at = At(0, 0, counts=counted)
        trap.set(at)
        await operation.run(self._world, daemon)
        await asyncio.sleep(0.2)
        trap.set(None)
        return len(at.seen)

    async def point(self, operation: Operation, number: int) -> None:
        """One death and one look at what it left."""
        daemon, trap = await self._ready()
        death = await die(trap, daemon, number, lambda each: operation.run(self._world, each))
        self._daemon = None
        after, _ = await self._start()
        try:
            # Every process of the last daemon's has gone: its filter has no user any more.
            assert trap.empty()
            await self._check(operation, after, death)
        except (AssertionError, LookupError) as error:
            self.failures.append(f"died at {number}, {death.at}: {error!r}")
            await self._begin_anew()
        finally:
            trap.__exit__()

    async def _ready(self) -> tuple[Daemon, Trap]:
        daemon, trap = self._daemon, self._trap
        if daemon is None or trap is None:
            daemon, trap = await self._start()
        await self._world.reset(daemon)
        return daemon, trap

    async def _begin_anew(self) -> None:
        """What is wrong with one point must not be with the next."""
        await self.end()
        self._daemon = self._trap = None
        self._roots += 1

    async def _start(self) -> tuple[Daemon, Trap]:
        root = self._world.lab.top / f"root-{self._roots}"
        self._trap = trap = Trap(root).__enter__()
        self._daemon = daemon = self._world.lab.daemon(root, trap)
        await daemon.start(ready=False)
        return daemon, trap

    async def _check(self, operation: Operation, daemon: Daemon, death: Death) -> None:
        world = self._world
        answered = death.reply is not None and death.reply.status < 300
        assert_clean(daemon)
        seen = await world.lab.look(daemon)
        outcome = judge(world, operation, seen, answered=answered)
        if outcome is None:
            self.found["dirty"] += 1
            await self._dirty(daemon, seen)
            return
        self.found[outcome.name] += 1
        if outcome.name == "terminated":
            reply = await daemon.execute("ls", language="bash", session="the-next")
            assert reply.json["run"]["stdout"] == "main\n"
            await terminate(daemon)
            return
        assert await next_turn(daemon) == expected_turn(world, outcome, seen)
        if operation is OPERATIONS["checkpoint"] and death.reply is not None:
            await world.restores(daemon, death.reply.body)
        if operation is OPERATIONS["push inputs"]:
            await self._pushed_or_not(daemon)

    async def _dirty(self, daemon: Daemon, seen: Seen) -> None:
        """It says so to everyone, and a restore, or the end, makes it whole."""
        for reply in (
            await daemon.execute("true", language="bash", session=SESSION),
            await daemon.checkpoint(SESSION),
            await daemon.get("/session/files", session=SESSION),
        ):
            said = reply.json
            assert (reply.status, said["error"]) == (409, "session_workspace_dirty"), said
            assert (said["reason"], said["recycle"]) == (seen.dirty, True)
        if seen.dirty == "terminated":
            assert (await terminate(daemon)).status == 200

    async def _pushed_or_not(self, daemon: Daemon) -> None:
        refs = [{"cache_key": PUSHED.key}]
        reply = await daemon.request("POST", "/session/inputs/probe", json={"refs": refs})
        if reply.json["missing"]:
            self.found["pushed"] += 1
            await push(daemon, PUSHED)
        used = await daemon.execute(
            "cat pushed", language="bash", files=[reference(PUSHED, "pushed")]
        )
        assert used.json["run"]["stdout"].encode() == PUSHED.body
        # For the next point it must be missing again.
        await terminate(daemon)

    async def end(self) -> None:
        """Stops the last daemon."""
        if self._daemon is not None:
            await self._daemon.stop()
        if self._trap is not None:
            self._trap.__exit__()
