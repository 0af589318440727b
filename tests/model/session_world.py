"""What the model of our lifecycle knows of the world, and what must be true of it.

What lives here: the variables and the invariants. The steps are in `session_model`; both are
written again for TLC in `docs/spec/Session.tla`, in the same words.

One VM serves one session to a few clients. The truth (what is on the disk, what was set up) is
kept apart from what the daemon believes (its state) and from what it has noted (its record), so
that a belief that is wrong can be seen. A twin stands for whatever else was started from the same
snapshot: VMs share nothing but the process memory they were cloned from.

Worlds are named tuples and not dataclasses: a search makes a million of them, and named tuples
are copied and hashed in half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from runner.session import lifecycle
from runner.session.adoption import adopted_state
from runner.session.lifecycle import Operation, State
from runner.session.record import Record

CLIENTS = 2
#: How many incarnations are minted before the story ends.
INCARNATIONS = 3
#: No incarnation: an unbound VM, a marker that is not there, a client that expects nothing.
NONE = 0
NO_TWIN = -1

#: What only a provisioned incarnation may serve.
USES = frozenset({Operation.EXECUTE, Operation.EDIT, Operation.CHECKPOINT, Operation.ATTACH})


class Files(StrEnum):
    """The truth about the workspace."""

    EMPTY = "empty"
    WHOLE = "whole"
    HALF = "half"
    RESTORED = "restored"
    MISSING = "missing"


class Note(StrEnum):
    """What the record says about a half-change."""

    CLEAN = ""
    PLACING = "priming"
    RESTORING = "restoring"
    MISSING = "workspace_missing"
    ENDED = "terminated"
    NOT_EMPTY = "jail_not_empty"


class Step(StrEnum):
    """How far the operation that holds the session has come."""

    BEGUN = "begun"
    #: Noted as dirty; from here on the workspace may be half-changed.
    TORN = "torn"
    #: Priming is over, the program runs.
    PLACED = "placed"
    #: The boot hooks have run; nobody has noted it yet.
    SET_UP = "set up"
    #: The directories have been exchanged; nobody has noted it yet.
    EXCHANGED = "exchanged"
    #: The restore has failed; the workspace is being emptied.
    WIPING = "wiping"


class Hold(NamedTuple):
    client: int
    operation: Operation
    origin: State
    expected: int
    step: Step = Step.BEGUN


class Vm(NamedTuple):
    #: What the daemon believes; while it is dead, what it believed last.
    state: State = State.UNBOUND
    alive: bool = True
    #: The record.
    incarnation: int = NONE
    marker: int = NONE
    note: Note = Note.CLEAN
    terminated: bool = False
    #: The disk: what is in the workspace, whose it is, and whether it was set up.
    files: Files = Files.EMPTY
    files_of: int = NONE
    set_up: bool = False
    #: The last restore failed after it had begun, and nothing has been put there since.
    failed: bool = False
    #: A terminal: it has attached, and stays beside whatever holds the session.
    guest: bool = False
    holds: tuple[Hold, ...] = ()

    def emptied(self) -> Vm:
        """The workspace and its metadata are wiped."""
        wiped = self._replace(files=Files.EMPTY, files_of=NONE, set_up=False)
        return wiped._replace(marker=NONE, note=Note.CLEAN)


class Client(NamedTuple):
    #: The incarnation it sends as X-Expected-Incarnation.
    expects: int = NONE
    #: It was done, and the reply never came: the client will ask again.
    unanswered: Operation | None = None


class World(NamedTuple):
    vm: Vm = Vm()
    #: Another clone of the snapshot: NO_TWIN, NONE while it is unbound, or its incarnation.
    twin: int = NO_TWIN
    minted: int = 0
    clients: tuple[Client, ...] = (Client(),) * CLIENTS


def no_use_without_set_up(world: World) -> bool:
    """No attach, no execute and no other use of an incarnation that was not provisioned, and no
    terminal that stays on one."""
    vm = world.vm
    is_used = vm.guest or any(hold.operation in USES for hold in vm.holds)
    return not is_used or (vm.set_up and vm.marker == vm.incarnation)


def ready_is_never_demoted(world: World) -> bool:
    """What the marker vouches for is not fresh again, and is not provisioned again."""
    vm = world.vm
    vouched = vm.alive and vm.marker != NONE and vm.marker == vm.incarnation
    return not (vouched and vm.state in {State.FRESH, State.PROVISIONING})


def dirty_only_restores(world: World) -> bool:
    """Nothing but a restore starts on a dirty session, and what is half-changed is dirty."""
    vm = world.vm
    half = vm.alive and not vm.holds and vm.files is Files.HALF
    return not (half and vm.state is not State.DIRTY) and all(
        hold.operation is Operation.RESTORE for hold in vm.holds if hold.origin is State.DIRTY
    )


def one_holder(world: World) -> bool:
    """The session is held by one operation, or by none and then is in no state of being held."""
    vm = world.vm
    return len(vm.holds) == int(vm.alive and vm.state in lifecycle.HELD)


def failed_restore_leaves_nothing(world: World) -> bool:
    """After a restore that failed on its way the workspace is empty, or the session is dirty."""
    vm = world.vm
    settled = vm.failed and vm.alive and not vm.holds
    return not settled or vm.files is Files.EMPTY or vm.state is State.DIRTY


def repeatable(world: World) -> bool:
    """Who was not answered may ask again, unless somebody else has made the session unusable."""
    return not world.vm.alive or all(
        client.unanswered is None or _may_repeat(world.vm.state, client.unanswered)
        for client in world.clients
    )


def clones_differ(world: World) -> bool:
    """Two clones of one snapshot never have the same incarnation."""
    return world.twin <= NONE or world.twin != world.vm.incarnation


def record_tells_state(world: World) -> bool:
    """A daemon that dies between operations is followed by one that believes the same."""
    vm = world.vm
    # A workspace that is gone is noticed by the next who uses it, not before.
    unnoticed = vm.files is Files.MISSING and vm.note is Note.CLEAN
    return not vm.alive or bool(vm.holds) or unnoticed or vm.state is adopted(vm)


def own_files(world: World) -> bool:
    """An incarnation has the files that were put into it, and no others."""
    vm = world.vm
    nobodys = vm.files in {Files.EMPTY, Files.MISSING}
    return vm.files_of == (NONE if nobodys else vm.incarnation)


def bound_to_use(world: World) -> bool:
    """Whatever is in use has an incarnation, and it is the one that the client expects."""
    vm = world.vm
    unbound = vm.state in {State.UNBOUND, State.TERMINATED}
    return unbound == (vm.incarnation == NONE) and all(
        hold.expected in {NONE, vm.incarnation} for hold in vm.holds
    )


INVARIANTS: Mapping[str, Callable[[World], bool]] = {
    "NoUseWithoutSetUp": no_use_without_set_up,
    "ReadyIsNeverDemoted": ready_is_never_demoted,
    "DirtyOnlyRestores": dirty_only_restores,
    "OneHolder": one_holder,
    "FailedRestoreLeavesNothing": failed_restore_leaves_nothing,
    "Repeatable": repeatable,
    "ClonesDiffer": clones_differ,
    "RecordTellsState": record_tells_state,
    "OwnFiles": own_files,
    "BoundToUse": bound_to_use,
}


def adopted(vm: Vm) -> State:
    """What the real daemon makes of the record and the disk of this VM when it starts."""
    present = vm.files is not Files.MISSING
    return _adopted(vm.incarnation, vm.marker, vm.note, vm.terminated, present)


@cache
def _adopted(incarnation: int, marker: int, note: Note, terminated: bool, present: bool) -> State:
    if incarnation == NONE and not terminated:
        return adopted_state(None, workspace_present=present)
    record: dict[str, Any] = {"provisioned": str(marker) if marker else None}
    record |= {"dirty": note.value or None, "terminated": terminated}
    return adopted_state(
        Record(session="s", incarnation=str(incarnation), **record), workspace_present=present
    )


def _may_repeat(state: State, operation: Operation) -> bool:
    """What was done may be asked for again: by the table, or because nothing is left to do."""
    if state in lifecycle.HELD:
        return True  # Busy now; a wait and 409 session_busy, and the next time may be better.
    if already_done(state, operation) or lifecycle.find(state, operation) is not None:
        return True
    if state is State.FRESH:  # The first use provisions.
        return lifecycle.find(State.READY, operation) is not None
    return state in {State.DIRTY, State.TERMINATED} and operation is not Operation.RESTORE


def already_done(state: State, operation: Operation) -> bool:
    """A request for what is so already is answered with success, and changes nothing."""
    return (operation, state) in {
        (Operation.BOOT, State.READY),
        (Operation.TERMINATE, State.TERMINATED),
    }
