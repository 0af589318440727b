"""How an operation that holds the session goes on and ends; part of the model of our lifecycle.

What lives here: the steps between an operation's start and its end, as `session.Hold` offers
them, and the guards outside the table that a test may take away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runner.session import lifecycle
from runner.session.lifecycle import End, Operation
from tests.model.session_world import NONE, Client, Files, Hold, Note, Step, Vm, World

#: A step: the name of its action, and the world after it.
Named = tuple[str, World]

#: Operations that put files into the workspace.
PLACING = frozenset({Operation.EXECUTE, Operation.EDIT})
#: Operations whose reply can be lost after they were done. One that only reads would add nothing.
ANSWERED = frozenset({Operation.BOOT, Operation.EXECUTE, Operation.RESTORE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What protects the session besides the table. A test takes each away to see it is needed."""

    #: The incarnation is minted when a session is bound, not when the process starts.
    mint_when_bound: bool = True
    #: A half-change is noted before it is made.
    note_first: bool = True
    #: A restore that fails after it began empties the workspace.
    wipe_on_failure: bool = True
    #: A daemon that finds a restore unfinished empties the workspace.
    wipe_at_start: bool = True
    #: A daemon that starts heeds the note of a half-change.
    heed_note: bool = True
    #: A daemon that starts ends the jails of the one before.
    end_jails: bool = True
    #: A restore takes away the marker of what it replaces.
    unmark: bool = True
    #: A restore turns a terminal out before it changes anything.
    turn_out: bool = True
    #: The marker is written after the boot hooks have run.
    mark_last: bool = True
    #: X-Expected-Incarnation is compared.
    expect: bool = True
    #: A terminated VM is wiped.
    wipe_terminated: bool = True
    #: A VM that is to be terminated and cannot be wiped is noted as dirty.
    note_terminating: bool = True


def advance(world: World, hold: Hold, guards: Guards) -> Iterator[Named]:
    """Every next step of `hold`, its ends included."""
    match hold.operation:
        case Operation.BOOT:
            yield from _boot(world, hold, guards)
        case Operation.RESTORE:
            yield from _restore(world, hold, guards)
        case _:
            yield from _use(world, hold, guards)


def _boot(world: World, hold: Hold, guards: Guards) -> Iterator[Named]:
    vm = world.vm
    yield "Undone", _ended(world, hold, vm, End.UNDONE)
    if hold.step is Step.BEGUN:
        files = Files.EMPTY if vm.files is Files.MISSING else vm.files
        hooked = vm._replace(files=files, set_up=True)
        yield "RunHooks", _at(world, hold, hooked, Step.SET_UP)
    if hold.step is Step.SET_UP or not guards.mark_last:
        vouched = vm._replace(marker=vm.incarnation, failed=False)
        yield from _done(world, hold, vouched)


def _use(world: World, hold: Hold, guards: Guards) -> Iterator[Named]:
    """Execute, edit, checkpoint, attach."""
    vm = world.vm
    if vm.files is Files.MISSING:
        yield "Missing", _ended(world, hold, vm._replace(note=Note.MISSING), End.TORN)
        return
    if hold.step is Step.TORN:
        placed = vm._replace(note=Note.CLEAN, files=Files.WHOLE, failed=False)
        yield "Placed", _at(world, hold, placed, Step.PLACED)
        yield "Torn", _ended(world, hold, vm, End.TORN)
        return
    if hold.step is Step.BEGUN and hold.operation in PLACING:
        half = vm._replace(files=Files.HALF, files_of=vm.incarnation)
        noted = half._replace(note=Note.PLACING) if guards.note_first else half
        yield "Place", _at(world, hold, noted, Step.TORN)
    yield "Undone", _ended(world, hold, vm, End.UNDONE)
    stays = vm.guest or hold.operation is Operation.ATTACH
    yield from _done(world, hold, vm._replace(guest=stays))


def _restore(world: World, hold: Hold, guards: Guards) -> Iterator[Named]:
    vm = world.vm
    match hold.step:
        case Step.BEGUN:
            yield "Undone", _ended(world, hold, vm, End.UNDONE)
            if vm.guest:
                # It serves nobody any more; what may be left of it could still write.
                left = vm._replace(note=Note.NOT_EMPTY, guest=False)
                yield "GuestStays", _ended(world, hold, left, End.TORN)
            noted = vm._replace(note=Note.RESTORING) if guards.note_first else vm
            alone = noted._replace(guest=noted.guest and not guards.turn_out)
            yield "BodyBegins", _at(world, hold, alone, Step.TORN)
        case Step.TORN:
            theirs = vm._replace(files=Files.RESTORED, files_of=vm.incarnation, set_up=False)
            yield "Exchange", _at(world, hold, theirs, Step.EXCHANGED)
        case Step.EXCHANGED:
            marker = NONE if guards.unmark else vm.marker
            whole = vm._replace(marker=marker, note=Note.CLEAN, failed=False)
            yield from _done(world, hold, whole)
        case Step.WIPING:
            yield "Wiped", _ended(world, hold, vm.emptied(), End.WIPED)
            yield "CannotWipe", _ended(world, hold, vm, End.TORN)
    if hold.step in {Step.TORN, Step.EXCHANGED}:
        failed = vm._replace(failed=True)
        if guards.wipe_on_failure:
            half = failed._replace(files=Files.HALF, files_of=vm.incarnation)
            yield "RestoreFails", _at(world, hold, half, Step.WIPING)
        else:
            clean = failed._replace(note=Note.CLEAN)
            yield "RestoreFails", _ended(world, hold, clean, End.UNDONE)


def _done(world: World, hold: Hold, vm: Vm) -> Iterator[Named]:
    """Done; and the reply arrives, or it does not."""
    ended = _ended(world, hold, vm, End.DONE)
    yield "Done", moved(ended, hold.client, Client(expects=vm.incarnation))
    if hold.operation in ANSWERED:
        unanswered = world.clients[hold.client]._replace(unanswered=hold.operation)
        yield "DoneUnanswered", moved(ended, hold.client, unanswered)


def _at(world: World, hold: Hold, vm: Vm, step: Step) -> World:
    holds = tuple(other._replace(step=step) if other == hold else other for other in vm.holds)
    return world._replace(vm=vm._replace(holds=holds))


def _ended(world: World, hold: Hold, vm: Vm, end: End) -> World:
    row = lifecycle.find(hold.origin, hold.operation)
    assert row is not None
    holds = tuple(other for other in vm.holds if other != hold)
    return world._replace(vm=vm._replace(state=lifecycle.after(row, hold.origin, end), holds=holds))


def died(vm: Vm, guards: Guards) -> Vm:
    """The daemon is gone, and the jails with it; the disk and the record are what they were.

    A restore that had not begun when the daemon died has never been there.
    """
    left = () if guards.end_jails else vm.holds
    guest = vm.guest and not guards.end_jails
    state = vm.state
    for hold in vm.holds:
        row = lifecycle.find(hold.origin, hold.operation)
        if row is not None and hold.operation is Operation.RESTORE and hold.step is Step.BEGUN:
            state = lifecycle.after(row, hold.origin, End.UNDONE)
    failed = vm.failed or vm.note is Note.RESTORING
    return vm._replace(state=state, alive=False, holds=left, failed=failed, guest=guest)


def moved(world: World, client: int, now: Client) -> World:
    """The world in which `client` is as `now` says."""
    return world._replace(clients=(*world.clients[:client], now, *world.clients[client + 1 :]))
