"""The operations of the crash matrix, and what each may leave when the daemon dies in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import aiohttp

from tests.faults.crashlab import (
    KEY,
    READ_ONLY,
    SESSION,
    Behaviour,
    Held,
    Lab,
    Seen,
    next_turn,
    noted,
    push,
    reference,
)
from tests.harness import Daemon, Reply
from tests.pushing import Item

MADE = "mkdir -p d/e; echo old > d/e/old-output; echo edit >> in.txt; ln -s ../nowhere d/link"
LATER = "echo new > d/new-output; rm d/e/old-output; echo other > in.txt; chmod 600 d/new-output"
#: Does something only when it is told to.
GATED = '[ -z "$1" ] || echo made > made'
PUSHED = Item("store", "pushed", b"pushed bytes\n")


@dataclass(frozen=True, slots=True)
class Measured:
    """A session that nobody stopped: what it holds, and what its next turn is."""

    held: Held
    behaviour: Behaviour


@dataclass(slots=True)
class World:
    """What all points of a matrix have in common, made once by daemons that are left alone."""

    lab: Lab
    #: The workspace of before, and another one of the same session, as archives.
    old: bytes = b""
    new: bytes = b""
    base: bytes = b""
    delta: bytes = b""
    references: dict[str, Measured] = field(default_factory=dict)

    async def reset(self, daemon: Daemon) -> None:
        """The session of before, ready."""
        reply = await daemon.restore(SESSION, self.old, headers=KEY)
        assert reply.status == 200, reply.body
        assert (await push(daemon, READ_ONLY)).status == 200

    async def restores(self, daemon: Daemon, archive: bytes) -> None:
        """Fails unless this is an archive of the session of before."""
        reply = await daemon.restore(SESSION, archive, headers=KEY)
        assert reply.status == 200, reply.body
        assert self.lab.look_at_disk(daemon.data_root) == self.references["old"].held


Run = Callable[[World, Daemon], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing that may be left: a reference by name, and the states in which it is found.

    `unnoted`: files whose delivery may not be noted yet; the next turn then gives them once more,
    if they are there. `answered`: this may be left behind an answer that said it was done.
    """

    name: str
    states: frozenset[str]
    unnoted: frozenset[str] = frozenset()
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """`torn`: the reason of the dirty state that it may leave."""

    name: str
    run: Run
    outcomes: tuple[Outcome, ...]
    torn: str | None = None


def _outcome(name: str, *states: str, unnoted: str = "", answered: bool = False) -> Outcome:
    return Outcome(name, frozenset(states), frozenset(unnoted.split()), answered)


async def _restore(world: World, daemon: Daemon) -> Reply:
    return await daemon.restore(SESSION, world.new, headers=KEY)


async def _restore_chain(world: World, daemon: Daemon) -> Reply:
    with aiohttp.MultipartWriter("mixed") as parts:
        for archive in (world.base, world.delta):
            parts.append(archive, {"Content-Type": "application/x-gtar"})  # type: ignore[arg-type]
    media_type = {"Content-Type": f"multipart/mixed; boundary={parts.boundary}"}
    return await daemon.restore(SESSION, parts, headers=KEY | media_type)


async def _restore_damaged(world: World, daemon: Daemon) -> Reply:
    return await daemon.restore(SESSION, world.new[:-20], headers=KEY)


async def _checkpoint(world: World, daemon: Daemon) -> Reply:
    return await daemon.checkpoint(SESSION, headers=KEY)


async def _execute(world: World, daemon: Daemon, *args: str) -> Reply:
    files = [
        {"name": "d/e", "content": "a file where a directory was\n"},
        {"name": "in.txt", "content": "second original\n"},
        {"name": "fresh/deep/in.txt", "content": "x\n"},
        reference(READ_ONLY, "fixed-too.txt"),
    ]
    return await daemon.execute(
        GATED, language="bash", session=SESSION, name="gated", files=files, args=list(args)
    )


async def _execute_and_make(world: World, daemon: Daemon) -> Reply:
    return await _execute(world, daemon, "go")


async def _put(world: World, daemon: Daemon) -> Reply:
    return await daemon.request(
        "PUT", "/session/files/fresh/deep/put.txt", session=SESSION, data=b"put\n"
    )


async def _put_over(world: World, daemon: Daemon) -> Reply:
    return await daemon.request("PUT", "/session/files/in.txt", session=SESSION, data=b"put\n")


async def _delete(world: World, daemon: Daemon) -> Reply:
    return await daemon.request("DELETE", "/session/files/d/e/old-output", session=SESSION)


async def _delete_input(world: World, daemon: Daemon) -> Reply:
    return await daemon.request("DELETE", "/session/files/in.txt", session=SESSION)


async def _push(world: World, daemon: Daemon) -> Reply:
    return await push(daemon, PUSHED)


async def _terminate(world: World, daemon: Daemon) -> Reply:
    return await terminate(daemon)


async def terminate(daemon: Daemon) -> Reply:
    """The platform's hook."""
    return await daemon.request("POST", "/aws/lambda-microvms/runtime/v1/terminate")


BEFORE = _outcome("old", "ready")
_ALL = (
    Operation(
        "restore",
        _restore,
        (
            BEFORE,
            _outcome("empty", "fresh"),
            _outcome("restored", "fresh", "ready", answered=True),
        ),
    ),
    Operation(
        "restore of a base and its delta",
        _restore_chain,
        (
            BEFORE,
            _outcome("empty", "fresh"),
            _outcome("restored", "fresh", "ready", answered=True),
        ),
    ),
    Operation(
        "restore of a damaged archive", _restore_damaged, (BEFORE, _outcome("empty", "fresh"))
    ),
    Operation("checkpoint", _checkpoint, (_outcome("old", "ready", answered=True),)),
    Operation(
        "execute",
        _execute_and_make,
        (
            BEFORE,
            # In place and noted; the program has not run, or not to its end.
            _outcome("primed", "ready"),
            _outcome("executed", "ready", unnoted="made", answered=True),
        ),
        torn="priming",
    ),
    Operation(
        "put a new file",
        _put,
        (BEFORE, _outcome("put", "ready", unnoted="fresh/deep/put.txt", answered=True)),
    ),
    Operation(
        "put over a file",
        _put_over,
        (BEFORE, _outcome("put over", "ready", unnoted="in.txt", answered=True)),
    ),
    Operation(
        "delete",
        _delete,
        (
            _outcome("old", "ready", unnoted="d/e/old-output"),
            _outcome("deleted", "ready", answered=True),
        ),
    ),
    Operation(
        "delete an edited input",
        _delete_input,
        (
            _outcome("old", "ready", unnoted="in.txt"),
            _outcome("input deleted", "ready", unnoted="in.txt", answered=True),
        ),
    ),
    Operation("push inputs", _push, (_outcome("old", "ready", answered=True),)),
    Operation(
        "terminate",
        _terminate,
        (BEFORE, _outcome("terminated", "terminated", "unbound", answered=True)),
        torn="terminated",
    ),
)
OPERATIONS: dict[str, Operation] = {each.name: each for each in _ALL}
#: reference → how it is come to from the session of before.
_WAYS: dict[str, Run | None] = {
    "old": None,
    "restored": _restore,
    "empty": _restore_damaged,
    "primed": _execute,
    "executed": _execute_and_make,
    "put": _put,
    "put over": _put_over,
    "deleted": _delete,
    "input deleted": _delete_input,
    "terminated": _terminate,
}


async def make_world(lab: Lab, wanted: set[str]) -> World:
    """The two archives, and the references in `wanted`."""
    world = World(lab)
    async with lab.daemon(lab.top / "world") as daemon:
        await _make_archives(world, daemon)
        for name in sorted(wanted):
            await world.reset(daemon)
            way = _WAYS[name]
            if way is not None:
                reply = await way(world, daemon)
                if name in ("primed", "executed"):
                    await noted(daemon, reply)
            held = lab.look_at_disk(daemon.data_root)
            world.references[name] = Measured(held, await next_turn(daemon))
    return world


async def _make_archives(world: World, daemon: Daemon) -> None:
    async def turn(code: str, original: str) -> None:
        await push(daemon, READ_ONLY)
        files = [{"name": "in.txt", "content": original}, reference(READ_ONLY, "fixed.txt")]
        await noted(
            daemon,
            await daemon.execute(code, language="bash", session=SESSION, name="main", files=files),
        )

    await turn(MADE, "first original\n")
    base = await daemon.checkpoint(SESSION, headers=KEY)
    world.old = world.base = base.body
    await turn(LATER, "another original\n")
    full = await daemon.checkpoint(SESSION, headers=KEY)
    world.new = full.body
    # Small as it is, a delta is only sent where it is smaller than the whole.
    delta = await daemon.checkpoint(
        SESSION, headers=KEY | {"If-Checkpoint-Base": base.headers["ETag"]}
    )
    assert delta.headers["X-Checkpoint-Kind"] == "delta"
    world.delta = delta.body


def judge(
    world: World, operation: Operation, seen: Seen, *, answered: bool, alive: bool = False
) -> Outcome | None:
    """The outcome that was found, whole; None for a dirty session, typed. Fails for all else.

    `alive`: the daemon that failed is still the same, and has not said yet that a restore it was
    not stopped in is over: it is dirty where a start would have wiped.
    """
    if seen.dirty is not None or seen.state == "dirty":
        torn = {operation.torn, "restoring"} if alive else {operation.torn}
        assert seen.state == "dirty" and seen.dirty in torn, (seen.state, seen.dirty)
        assert not answered
        return None
    for outcome in operation.outcomes:
        held = world.references[outcome.name].held
        if held.noted_otherwise(seen.held, outcome.unnoted):
            assert seen.state in outcome.states, (outcome.name, seen.state)
            assert outcome.answered or not answered, f"{outcome.name} behind an answer"
            return outcome
    nearest = world.references[operation.outcomes[-1].name].held
    raise AssertionError(f"neither old nor new: {_difference(nearest, seen.held)}")


def _difference(wanted: Held, found: Held) -> str:
    said = []
    for what in ("files", "primed", "surfaced"):
        old, new = getattr(wanted, what), getattr(found, what)
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                said.append(f"{what} {name}: {old.get(name)} is {new.get(name)}")
    return "; ".join(said)


def expected_turn(world: World, outcome: Outcome, seen: Seen) -> Behaviour:
    """What the next turn of what was found has to be."""
    measured = world.references[outcome.name]
    noted_there, noted_here = measured.held.surfaced, seen.held.surfaced
    late = {name for name in noted_there if noted_there[name] != noted_here.get(name)}
    more = {(name, noted_there[name]) for name in late if name in seen.held.files}
    return replace(measured.behaviour, outputs=measured.behaviour.outputs | more)
