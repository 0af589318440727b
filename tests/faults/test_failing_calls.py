"""A disk that fails at any call: no room from there on, or one call that the disk answers with EIO.

The daemon goes on: what it says is typed, what it leaves is whole or said to be dirty, nothing is
held, and the next turn works. The whole of it is part of `make crash`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp
import pytest
import pytest_asyncio

from tests.faults.crash_operations import (
    OPERATIONS,
    Operation,
    World,
    expected_turn,
    judge,
    make_world,
    terminate,
)
from tests.faults.crashlab import MARKS, SESSION, counted, laboratory, next_turn
from tests.faults.test_crash_matrix import numbers
from tests.harness import Daemon, Reply
from tests.leftovers import settled
from tests.trap.trap import At, Kind, Stopped, Trap

pytestmark = MARKS

#: For an operation whose disk fails.
ANSWER_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Which calls it hits, with what, and what a failure because of it is called."""

    what: int
    counts: Callable[[Stopped], bool]
    on: bool
    told: frozenset[tuple[int, str]]


def of_kind(*kinds: Kind) -> Callable[[Stopped], bool]:
    """Counted calls of these kinds."""
    return lambda stopped: counted(stopped) and stopped.kind in kinds


INTERNAL = (500, "internal")
FAULTS = {
    "no room from here on": Fault(
        errno.ENOSPC, of_kind(Kind.GROWS), True, frozenset({(507, "insufficient_storage")})
    ),
    "a change that the disk refuses": Fault(
        errno.EIO,
        of_kind(Kind.GROWS, Kind.CHANGES, Kind.SYNCS),
        False,
        # An input that cannot be marked as used is not to be relied on.
        frozenset({INTERNAL, (409, "input_unavailable")}),
    ),
    "a read that the disk refuses": Fault(
        errno.EIO,
        of_kind(Kind.READS),
        False,
        # A workspace that cannot be looked at is as good as gone.
        frozenset({INTERNAL, (409, "session_workspace_dirty"), (409, "input_unavailable")}),
    ),
}


CUT = Reply(0, {}, b'{"error": "cut"}')
#: What an operation says whichever of its calls failed.
MAY_ALSO_SAY = {
    "checkpoint": frozenset({(0, "cut")}),
    "restore of a damaged archive": frozenset({(422, "checkpoint_corrupt")}),
    "terminate": frozenset({INTERNAL}),
}


class Stage:
    """One daemon, which none of this may end."""

    def __init__(self, world: World, trap: Trap, daemon: Daemon) -> None:
        self.world = world
        self.trap = trap
        self.daemon = daemon
        self.found: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []

    async def count(self, operation: Operation, fault: Fault) -> int:
        """How many calls there are for the fault to hit."""
        at = At(0, 0, counts=fault.counts)
        await self._run(operation, at)
        return len(at.seen)

    async def point(self, operation: Operation, fault: Fault, number: int) -> None:
        """One failing call and all that comes of it."""
        at = At(number, fault.what, counts=fault.counts, on=fault.on)
        reply = None
        try:
            reply = await self._run(operation, at)
            await self._check(operation, fault, at, reply)
        except (AssertionError, TimeoutError, aiohttp.ClientError) as error:
            status = reply and (reply.status, reply.body[:200])
            self.failures.append(f"call {number}, {at.hit}: {status} {error!r}")
            await terminate(self.daemon)
        finally:
            self._sweep(at)

    async def _run(self, operation: Operation, at: At) -> Reply:
        """The answer; one without a status where the connection was cut in the middle of it."""
        await self.world.reset(self.daemon)
        self.trap.set(at)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                reply = await operation.run(self.world, self.daemon)
        except aiohttp.ClientPayloadError:
            # An archive that cannot be read to its end is never ended.
            assert operation.name == "checkpoint"
            reply = CUT
        else:
            # What is noted when the answer is out.
            await asyncio.sleep(0.05)
        finally:
            self.trap.set(None)
        return reply

    async def _check(self, operation: Operation, fault: Fault, at: At, reply: Reply) -> None:
        answered = 200 <= reply.status < 300
        if not answered:
            told = fault.told | MAY_ALSO_SAY.get(operation.name, frozenset())
            assert (reply.status, reply.json["error"]) in told, reply.json
            assert str(self.world.lab.top) not in reply.body.decode()
        seen = await self.world.lab.look(self.daemon)
        outcome = judge(self.world, operation, seen, answered=answered, alive=True)
        self.found[f"{reply.status} {outcome.name if outcome else 'dirty'}"] += 1
        if outcome is None:
            again = await self.daemon.execute("true", language="bash", session=SESSION)
            assert (again.status, again.json["reason"]) == (409, seen.dirty)
        elif outcome.name != "terminated":
            assert await next_turn(self.daemon) == expected_turn(self.world, outcome, seen)
        if operation.name == "checkpoint" and answered:
            # It does not lie: what was read around the fault is all there.
            await self.world.restores(self.daemon, reply.body)
        if seen.state in ("terminated", "dirty"):
            await terminate(self.daemon)

    def _sweep(self, at: At) -> None:
        """Nothing is left over but what the fault itself kept from being removed."""
        top = self.daemon.data_root
        for place in ("staging", "jobs"):
            for name in os.listdir(top / place):
                if not _removes(at.hit, place):
                    self.failures.append(f"{at.hit}: {place}/{name} is left")
                subprocess.run(["rm", "-rf", "--", str(top / place / name)], check=True)


def _removes(hit: Stopped | None, place: str) -> bool:
    """Whether it may have been part of clearing that directory."""
    if hit is None or not hit.paths[0].startswith(place):
        return False
    return hit.kind is Kind.READS or "unlink" in hit.name or ".removing-" in hit.paths[-1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    names = {outcome.name for each in OPERATIONS.values() for outcome in each.outcomes}
    with laboratory() as lab:
        world = await make_world(lab, names)
        root = lab.top / "failing"
        with Trap(root, reading=True) as trap:
            async with lab.daemon(root, trap) as daemon:
                yield Stage(world, trap, daemon)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_failing_call_is_told_and_leaves_the_session_usable(
    stage: Stage, name: str, fault: str
) -> None:
    operation = OPERATIONS[name]
    calls = await stage.count(operation, FAULTS[fault])
    before = descriptors(stage.daemon)
    for number in numbers(calls):
        await stage.point(operation, FAULTS[fault], number)
    held = await settled(lambda: descriptors(stage.daemon) - before, collections.Counter())
    assert not held, held
    print(f"\n{name}, {fault}: {calls} calls, {dict(stage.found)}")
    stage.found.clear()
    failures, stage.failures = stage.failures, []
    assert not failures, "\n".join(failures)


def descriptors(daemon: Daemon) -> collections.Counter[str]:
    """What the daemon has open, but for connections: this client's pool keeps some."""
    found: collections.Counter[str] = collections.Counter()
    for name in os.listdir(f"/proc/{daemon.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[os.readlink(f"/proc/{daemon.pid}/fd/{name}").partition(":[")[0]] += 1
    del found["socket"]
    return found
