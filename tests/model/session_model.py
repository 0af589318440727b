"""Our own lifecycle as a model for `checker`: what clients ask, and what befalls the VM.

What lives here: the steps that start from outside. How an operation goes on once it holds the
session is in `session_hold`. All of them move by `runner.session.lifecycle` and by nothing else,
so that a change of the table changes what is explored. The lock is not modelled: the table alone
must keep a second operation out.
"""

from __future__ import annotations

from collections.abc import Iterator

from runner.session import lifecycle
from runner.session.lifecycle import End, Operation, State
from tests.model.checker import Model
from tests.model.session_hold import Guards, Named, advance, died, moved
from tests.model.session_world import (
    INCARNATIONS,
    INVARIANTS,
    NO_TWIN,
    NONE,
    Client,
    Files,
    Hold,
    Note,
    Vm,
    World,
    already_done,
)

ALL_GUARDS = Guards()


def session(guards: Guards = ALL_GUARDS, *, incarnations: int = INCARNATIONS) -> Model[World]:
    """The model of `lifecycle.TABLE` as that is when the steps are taken."""

    def successors(world: World) -> Iterator[Named]:
        yield from _platform(world, guards, incarnations)
        if not world.vm.alive:
            yield from _restart(world, guards)
            return
        for hold in world.vm.holds:
            yield from advance(world, hold, guards)
        for client in range(len(world.clients)):
            if all(hold.client != client for hold in world.vm.holds):
                yield from _ask(world, client, guards, incarnations)

    return Model(initial=(World(),), successors=successors, invariants=INVARIANTS)


def _ask(world: World, client: int, guards: Guards, incarnations: int) -> Iterator[Named]:
    """What a client that waits for nothing may ask."""
    vm, asking = world.vm, world.clients[client]
    if asking.expects not in {NONE, vm.incarnation}:
        yield "Mismatch", moved(world, client, asking._replace(expects=NONE))
        if guards.expect:
            return
    if lifecycle.find(vm.state, Operation.BIND) and world.minted < incarnations:
        yield "Bind", _bound(world, guards)
    answered = asking._replace(unanswered=None)
    if asking.unanswered is not None:
        if already_done(vm.state, asking.unanswered):
            yield "AlreadyDone", moved(world, client, answered)
            return
        if vm.state is State.DIRTY and not lifecycle.find(vm.state, asking.unanswered):
            yield "Refused", moved(world, client, answered)
    for operation in Operation:
        row = lifecycle.find(vm.state, operation)
        # Who was not answered asks for the same again, and that provisions where it has to.
        first_use = operation is Operation.BOOT and vm.state is State.FRESH
        if row is None or not (asking.unanswered in {None, operation} or first_use):
            continue
        if operation is Operation.TERMINATE:
            yield "Terminate", _terminated(world, guards)
            yield (
                "TerminateUnanswered",
                moved(_terminated(world, guards), client, Client(asking.expects, operation)),
            )
            yield "CannotTerminate", _not_terminated(world, guards)
        elif row.during is not None:
            hold = Hold(client, operation, vm.state, asking.expects)
            begun = vm._replace(state=row.during, holds=(*vm.holds, hold))
            yield f"Begin{operation.title()}", moved(world._replace(vm=begun), client, answered)


def _bound(world: World, guards: Guards) -> World:
    row = lifecycle.find(world.vm.state, Operation.BIND)
    assert row is not None
    minted = world.minted + 1
    vm = world.vm._replace(
        state=lifecycle.after(row, world.vm.state, End.DONE),
        incarnation=minted if guards.mint_when_bound else 1,
        marker=NONE,
        note=Note.CLEAN,
        terminated=False,
        set_up=False,
        failed=False,
    )
    return _nobody_waits(world)._replace(vm=vm, minted=minted)


def _terminated(world: World, guards: Guards) -> World:
    """The platform takes the VM back: whatever holds the session is ended first."""
    row = lifecycle.find(world.vm.state, Operation.TERMINATE)
    assert row is not None
    vm = world.vm.emptied() if guards.wipe_terminated else world.vm
    state = lifecycle.after(row, vm.state, End.DONE)
    over = vm._replace(state=state, holds=(), incarnation=NONE, terminated=True, failed=False)
    over = over._replace(guest=False)
    return _nobody_waits(world)._replace(vm=over)


def _not_terminated(world: World, guards: Guards) -> World:
    """Nothing holds the session any more, and not everything that it had could be wiped."""
    vm = world.vm
    row = lifecycle.find(vm.state, Operation.TERMINATE)
    assert row is not None
    if End.TORN not in row.ends:
        return world._replace(vm=vm._replace(state=lifecycle.after(row, vm.state, End.UNDONE)))
    note = Note.ENDED if guards.note_terminating else vm.note
    half = vm._replace(files=Files.HALF, files_of=vm.incarnation, note=note, holds=(), guest=False)
    state = lifecycle.after(row, vm.state, End.TORN)
    return world._replace(vm=half._replace(state=state))


def _platform(world: World, guards: Guards, incarnations: int) -> Iterator[Named]:
    """What befalls the VM."""
    vm = world.vm
    if vm.alive and vm.state is State.UNBOUND and world.twin == NO_TWIN:
        yield "Clone", world._replace(twin=NONE)
    if world.twin == NONE and world.minted < incarnations:
        minted = world.minted + 1
        twin = minted if guards.mint_when_bound else 1
        yield "BindTwin", world._replace(twin=twin, minted=minted)
    if vm.incarnation != NONE:
        # The control plane goes on with the twin, or with another VM from the same snapshot.
        fresh = Vm(state=State.FRESH, incarnation=world.twin) if world.twin > NONE else Vm()
        yield "VmLost", _nobody_waits(world)._replace(vm=fresh, twin=NO_TWIN)
    if vm.alive and vm.state is State.READY and vm.files is not Files.MISSING:
        lost = vm._replace(files=Files.MISSING, files_of=NONE)
        yield "VolumeLost", world._replace(vm=lost)
    if vm.guest:
        yield "GuestLeaves", world._replace(vm=vm._replace(guest=False))
    if vm.alive and vm.incarnation != NONE:
        yield "Die", world._replace(vm=died(vm, guards))


def _restart(world: World, guards: Guards) -> Iterator[Named]:
    """The next daemon on this disk. What the record notes goes before what the table says."""
    vm = world.vm._replace(alive=True)
    if vm.note is Note.RESTORING:
        swept = vm.emptied() if guards.wipe_at_start else vm._replace(note=Note.CLEAN)
        state = lifecycle.adopted(State.RESTORING)
        yield "RestartWipes", world._replace(vm=swept._replace(state=state))
        half = vm._replace(state=State.DIRTY, files=Files.HALF, files_of=vm.incarnation)
        yield "RestartCannotWipe", world._replace(vm=half)
    elif (vm.note is Note.CLEAN or not guards.heed_note) and vm.files is not Files.MISSING:
        state = lifecycle.adopted(vm.state)
        yield "Restart", world._replace(vm=vm._replace(state=state, note=Note.CLEAN))
    else:
        yield "RestartDirty", world._replace(vm=vm._replace(state=State.DIRTY))


def _nobody_waits(world: World) -> World:
    """What a client did to a session that is over is not asked for again."""
    if all(client.unanswered is None for client in world.clients):
        return world
    clients = tuple(client._replace(unanswered=None) for client in world.clients)
    return world._replace(clients=clients)
