"""What the session is when its record cannot be written, at each place that writes it.

On a real file system without room: a tmpfs of 256 KiB that is filled and emptied.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.errors import InsufficientStorage, Internal
from runner.session.adoption import adopted_state
from runner.session.hold import Hold
from runner.session.lifecycle import Operation, State
from runner.session.record import Dirty, Record, Store
from runner.session.session import Session
from tests.mounts import tmpfs

SESSION = "the-session"


class Disk:
    """A small file system that can be full."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"
        (path / "state").mkdir()

    def fill(self) -> None:
        with open(self._filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def store(self) -> Store:
        return Store(os.open(self.path / "state", os.O_RDONLY | os.O_DIRECTORY))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with tmpfs(tmp_path / "disk", size=256 << 10) as where:
        yield Disk(where)


@pytest.fixture
def session(disk: Disk) -> Session:
    return Session(disk.store(), None, state=State.UNBOUND, lock_wait=1.0)


@pytest.fixture
async def ready(session: Session) -> Session:
    session.bind(SESSION)
    await session.boot(nothing)
    return session


async def nothing() -> None:
    """Provisions nothing."""


def told(disk: Disk) -> tuple[State, Dirty | None]:
    """What a daemon that starts on this disk now would take the session for."""
    record = disk.store().load()
    return adopted_state(record, workspace_present=True), record.dirty if record else None


async def test_a_session_that_cannot_be_noted_is_not_bound(session: Session, disk: Disk) -> None:
    disk.fill()
    with pytest.raises(InsufficientStorage):
        session.bind(SESSION)
    assert (session.state, session.incarnation) == (State.UNBOUND, None)
    assert told(disk) == (State.UNBOUND, None)
    disk.free()
    session.bind(SESSION)
    assert session.state is State.FRESH


async def test_a_boot_that_cannot_be_noted_has_not_been(session: Session, disk: Disk) -> None:
    session.bind(SESSION)

    async def fills() -> None:
        disk.fill()

    with pytest.raises(InsufficientStorage):
        await session.boot(fills)
    assert session.state is State.FRESH
    assert told(disk) == (State.FRESH, None)
    disk.free()
    await session.boot(nothing)
    assert session.state is State.READY


async def test_a_half_change_that_cannot_be_noted_is_not_begun(ready: Session, disk: Disk) -> None:
    disk.fill()
    with pytest.raises(InsufficientStorage):
        async with ready.hold(Operation.EXECUTE, provision=nothing) as hold:
            hold.tearing(Dirty.PRIMING)
    assert ready.state is State.READY
    assert told(disk) == (State.READY, None)


@pytest.mark.parametrize(
    ("operation", "reason", "over"),
    [
        (Operation.EXECUTE, Dirty.PRIMING, lambda hold: hold.whole()),
        (Operation.RESTORE, Dirty.RESTORING, lambda hold: hold.wiped()),
        (Operation.RESTORE, Dirty.RESTORING, lambda hold: hold.replaced(primed={}, surfaced={})),
    ],
    ids=["whole", "wiped", "replaced"],
)
async def test_a_half_change_whose_end_cannot_be_noted_stays_one(
    operation: Operation,
    reason: Dirty,
    over: Callable[[Hold], None],
    ready: Session,
    disk: Disk,
) -> None:
    with pytest.raises((InsufficientStorage, Internal)) as failed:
        async with ready.hold(operation, provision=nothing) as hold:
            hold.tearing(reason)
            disk.fill()
            over(hold)
    assert ready.state is State.DIRTY and failed.value.recycle
    assert not hold.is_replaced
    assert told(disk) == (State.DIRTY, reason)
    disk.free()
    async with ready.hold(Operation.RESTORE, provision=nothing) as hold:
        hold.replaced(primed={}, surfaced={})
    assert ready.state is State.READY


async def test_a_delivery_that_cannot_be_noted_fails_nothing(ready: Session, disk: Disk) -> None:
    disk.fill()
    ready.ledger.note_surfaced({"out": "hash"}, epoch=ready.ledger.epoch)
    assert ready.ledger.bound.surfaced == {}
    assert told(disk) == (State.READY, None)


async def no_jails() -> None:
    """Ends none."""


async def test_terminate_makes_room_for_its_own_note(ready: Session, disk: Disk) -> None:
    disk.fill()
    await ready.terminate(end_jails=no_jails, wipe=disk.free)
    assert (ready.state, ready.incarnation) == (State.TERMINATED, None)
    assert told(disk) == (State.TERMINATED, None)


async def test_a_terminate_that_can_neither_note_nor_wipe_leaves_nobodys_files(
    ready: Session, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.fill()

    def half() -> None:
        raise OSError(errno.EBUSY, "busy")

    with pytest.raises(Internal):
        await ready.terminate(end_jails=no_jails, wipe=half)
    # What kept it from that is for the log alone.
    assert "busy" in caplog.text
    assert ready.state is State.DIRTY
    assert ready.ledger.bound.dirty is Dirty.ENDED
    # Unbound, with files: they are wiped at the start.
    assert told(disk) == (State.UNBOUND, None)
    await ready.terminate(end_jails=no_jails, wipe=disk.free)
    assert told(disk) == (State.TERMINATED, None)


async def test_a_terminate_that_cannot_be_noted_at_the_end_is_dirty(
    ready: Session, disk: Disk
) -> None:
    with pytest.raises(Internal):
        await ready.terminate(end_jails=no_jails, wipe=disk.fill)
    assert ready.state is State.DIRTY
    assert told(disk) == (State.DIRTY, Dirty.ENDED)


async def test_an_unbound_vm_that_cannot_be_wiped_is_still_unbound(
    session: Session, disk: Disk
) -> None:
    with pytest.raises(Internal):
        await session.terminate(end_jails=no_jails, wipe=disk.fill)
    assert session.state is State.UNBOUND
    assert told(disk) == (State.UNBOUND, None)


async def test_what_was_written_is_read_back_by_nobody_but_this_disk(disk: Disk) -> None:
    record = Record(session=SESSION, incarnation="inc_1", provisioned="inc_1")
    disk.store().save(record)
    assert disk.store().load() == record


async def test_notes_of_the_loop_and_of_a_thread_are_all_kept(ready: Session) -> None:
    """A delivery is noted while an operation's thread notes a half-change and its end."""
    ledger = ready.ledger
    async with ready.hold(Operation.EXECUTE, provision=nothing) as hold:

        def tear() -> list[Dirty | None]:
            seen = []
            for _ in range(200):
                hold.tearing(Dirty.PRIMING)
                seen.append(ledger.bound.dirty)
                hold.whole()
            return seen

        torn = asyncio.create_task(asyncio.to_thread(tear))
        noted: dict[str, str] = {}
        while not torn.done():
            noted[f"out-{len(noted)}"] = "hash"
            ledger.note_surfaced(noted, epoch=ledger.epoch)
            await asyncio.sleep(0)
        assert set(await torn) == {Dirty.PRIMING}
        hold.done()
    assert ledger.bound.surfaced == noted
