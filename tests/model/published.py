"""The published lifecycle of an ephemeral dev container, as a model for `checker`.

What lives here: that one model, in its guarded and its unguarded form. It is the yardstick for
the checker, whose figures must be the published ones; our own lifecycle is in `session_model`.
The same model for TLC is `docs/spec/Published.tla`.

The publication names the actions and the figures, not the variables. These are the ones that
give exactly its figures: the container, its incarnation, the readiness marker on its disk, and
for each client its phase, the incarnation its last boot started on and the incarnation its
terminal was last attached to. A client forgets neither of the two, and a terminal that the
container slept under stays in the client's hands until the client notices and reconnects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.model.checker import Model

CLIENTS = 2
INCARNATIONS = 3
#: Neither an incarnation nor a marker yet.
NONE = 0


class Container(StrEnum):
    ASLEEP = "asleep"
    #: Awake, and nobody provisions it. Only an unguarded terminal wakes a container so.
    FRESH = "fresh"
    PROVISIONING = "provisioning"
    READY = "ready"


class Phase(StrEnum):
    IDLE = "idle"
    BOOTING = "booting"
    #: The boot was answered with success, or a terminal was cut: the client wants to attach.
    CONNECTING = "connecting"
    ATTACHED = "attached"


@dataclass(frozen=True, slots=True)
class Client:
    phase: Phase = Phase.IDLE
    booted_on: int = NONE
    attached_to: int = NONE


@dataclass(frozen=True, slots=True)
class World:
    container: Container = Container.ASLEEP
    incarnation: int = NONE
    #: Which incarnation was provisioned. It is on the disk, so a sleep wipes it.
    marker: int = NONE
    clients: tuple[Client, ...] = (Client(),) * CLIENTS


def published(*, guarded: bool) -> Model[World]:
    """The design whose terminal attaches to nothing but a ready container, or the deployed one."""

    def successors(world: World) -> Iterator[tuple[str, World]]:
        for index, client in enumerate(world.clients):
            steps = (_boot(world, client), _terminal(world, client, guarded=guarded))
            for step in (step for group in steps for step in group):
                action, container, moved = step
                clients = (*world.clients[:index], moved, *world.clients[index + 1 :])
                yield action, replace(container, clients=clients)
        if world.container is not Container.ASLEEP:
            yield "Sleep", replace(world, container=Container.ASLEEP, marker=NONE)

    return Model(
        initial=(World(),),
        successors=successors,
        invariants={
            "NoAttachWithoutSetup": no_attach_without_setup,
            "ReadyIsHonest": ready_is_honest,
        },
    )


def no_attach_without_setup(world: World) -> bool:
    """Whoever has a terminal on the container that runs now has one on a provisioned container."""
    return world.container is Container.ASLEEP or all(
        world.marker == world.incarnation
        for client in world.clients
        if client.phase is Phase.ATTACHED and client.attached_to == world.incarnation
    )


def ready_is_honest(world: World) -> bool:
    """A container is ready only by a boot that started on this incarnation."""
    return world.container is not Container.READY or world.marker == world.incarnation


def _boot(world: World, client: Client) -> Iterator[tuple[str, World, Client]]:
    if client.phase is Phase.IDLE:
        booting = replace(client, phase=Phase.BOOTING, booted_on=world.incarnation)
        match world.container:
            case Container.ASLEEP if world.incarnation < INCARNATIONS:
                woken = _woken(world, Container.PROVISIONING)
                yield "StartBoot", woken, replace(booting, booted_on=woken.incarnation)
            case Container.FRESH | Container.PROVISIONING:
                yield "StartBoot", replace(world, container=Container.PROVISIONING), booting
            case Container.READY:
                yield "StartBoot", world, booting
    if client.phase is Phase.BOOTING:
        same = world.container is not Container.ASLEEP and client.booted_on == world.incarnation
        if same:
            ready = replace(world, container=Container.READY, marker=client.booted_on)
            yield "FinishBoot", ready, replace(client, phase=Phase.CONNECTING)
        else:
            yield "BootLost", world, replace(client, phase=Phase.IDLE)


def _terminal(
    world: World, client: Client, *, guarded: bool
) -> Iterator[tuple[str, World, Client]]:
    attached = replace(client, phase=Phase.ATTACHED, attached_to=world.incarnation)
    if client.phase is Phase.CONNECTING:
        match world.container:
            case Container.READY:
                yield "AttachReady", world, attached
            case _ if guarded:
                yield "AttachGuarded", world, replace(client, phase=Phase.IDLE)
            case Container.ASLEEP if world.incarnation < INCARNATIONS:
                woken = _woken(world, Container.FRESH)
                fresh = replace(attached, attached_to=woken.incarnation)
                yield "AttachWakesFresh", woken, fresh
            case Container.FRESH | Container.PROVISIONING:
                yield "AttachAwakeNotReady", world, attached
    if client.phase is Phase.ATTACHED and (
        world.container is Container.ASLEEP or client.attached_to != world.incarnation
    ):
        yield "Reconnect", world, replace(client, phase=Phase.CONNECTING)


def _woken(world: World, container: Container) -> World:
    return replace(world, container=container, incarnation=world.incarnation + 1)
