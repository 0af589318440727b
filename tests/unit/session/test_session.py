"""Binding, the lock, booting, and what a hold says of the workspace."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from copy import copy
from pathlib import Path

import pytest

from runner.errors import (
    CheckpointCorrupt,
    IncarnationMismatch,
    Internal,
    JailFailed,
    RunnerError,
    SessionBusy,
    SessionUnbound,
    WorkspaceDirty,
)
from runner.session.lifecycle import Operation, State
from runner.session.record import Dirty, Record, Store
from runner.session.session import Session
from runner.workspace.priming import Primed

MakeSession = Callable[..., Session]


@pytest.fixture
def make(tmp_path: Path) -> MakeSession:
    """A session on one disk: each call is the next daemon there."""
    (tmp_path / "state").mkdir()

    def made(*, state: State = State.UNBOUND, lock_wait: float = 2.0) -> Session:
        store = Store(os.open(tmp_path / "state", os.O_RDONLY | os.O_DIRECTORY))
        return Session(store, store.load(), state=state, lock_wait=lock_wait)

    return made


class Provisioning:
    """Counts how often a workspace was made; waits or fails as told."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.failure: Exception | None = None

    async def __call__(self) -> None:
        self.count += 1
        await self.may_end.wait()
        if self.failure is not None:
            raise self.failure


@pytest.fixture
async def provision() -> Provisioning:
    return Provisioning()


def saved(session: Session) -> Record | None:
    """What the next daemon would load."""
    return session.ledger._store.load()


def test_clones_of_a_disk_that_no_session_is_bound_to_get_a_key_each(tmp_path: Path) -> None:
    """Also of one that has a key already: of an earlier daemon, or of a session long gone."""
    keys = []
    for clone in ("first", "second"):
        (tmp_path / clone).mkdir()
        (tmp_path / clone / "key").write_bytes(b"k" * 32)
        store = Store(os.open(tmp_path / clone, os.O_RDONLY | os.O_DIRECTORY))
        session = Session(store, store.load(), state=State.UNBOUND, lock_wait=1.0)
        session.bind("s")
        keys.append(session.ledger.disk_key)
        assert (tmp_path / clone / "key").read_bytes() == session.ledger.disk_key
    assert len({b"k" * 32, *keys}) == 3


def test_the_key_stays_when_a_terminated_session_is_bound_again(make: MakeSession) -> None:
    first = make()
    first.bind("s")
    again = make(state=State.TERMINATED)
    again.bind("s")
    assert again.ledger.disk_key == first.ledger.disk_key


async def test_binding_is_once_and_for_one(make: MakeSession) -> None:
    session = make()
    assert (session.state, session.incarnation) == (State.UNBOUND, None)
    session.bind("a")
    incarnation = session.incarnation
    assert session.state is State.FRESH and incarnation
    session.bind("a")
    assert session.incarnation == incarnation
    with pytest.raises(WorkspaceDirty) as refused:
        session.bind("b")
    assert refused.value.reason == Dirty.OTHER
    assert saved(session) == Record(session="a", incarnation=incarnation)


async def test_a_binding_that_cannot_be_written_binds_nothing(
    make: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make()

    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(Store, "save", broken)
    with pytest.raises(OSError, match="broken"):
        session.bind("a")
    assert (session.state, session.incarnation) == (State.UNBOUND, None)


async def test_what_must_not_bind_does_not(make: MakeSession) -> None:
    session = make()
    with pytest.raises(SessionUnbound):
        session.require_bound("a")
    with pytest.raises(IncarnationMismatch):
        session.admit("a", expected_incarnation="other")
    assert session.state is State.UNBOUND
    session.admit("a", expected_incarnation=None)
    session.require_bound("a")
    with pytest.raises(IncarnationMismatch):
        session.expect("other")
    session.expect(session.incarnation)


async def test_the_first_use_provisions_and_the_next_does_not(
    make: MakeSession, provision: Provisioning
) -> None:
    session = make()
    session.bind("a")
    for _ in range(2):
        async with session.hold(Operation.EXECUTE, provision=provision) as hold:
            assert session.state is State.EXECUTING
            hold.done()
    assert (session.state, provision.count) == (State.READY, 1)
    record = saved(session)
    assert record is not None and record.provisioned == session.incarnation


async def test_many_first_uses_are_one_boot(make: MakeSession, provision: Provisioning) -> None:
    session = make()
    session.bind("a")
    provision.may_end.clear()

    async def use() -> None:
        async with session.hold(Operation.EXECUTE, provision=provision) as hold:
            hold.done()

    uses = [asyncio.create_task(use()) for _ in range(5)]
    await asyncio.sleep(0.02)
    assert session.state is State.PROVISIONING
    provision.may_end.set()
    await asyncio.gather(*uses)
    assert provision.count == 1


async def test_a_failed_boot_is_tried_again_by_the_next_use(
    make: MakeSession, provision: Provisioning
) -> None:
    session = make()
    session.bind("a")
    provision.failure = OSError("no disk")
    with pytest.raises(OSError, match="no disk"):
        async with session.hold(Operation.EXECUTE, provision=provision):
            pytest.fail("it was let in")
    assert session.state is State.FRESH
    provision.failure = None
    async with session.hold(Operation.EXECUTE, provision=provision) as hold:
        hold.done()
    assert (session.state, provision.count) == (State.READY, 2)


@pytest.fixture
async def ready(make: MakeSession, provision: Provisioning) -> Session:
    session = make(lock_wait=0.05)
    session.bind("a")
    await session.boot(provision)
    return session


async def test_the_second_is_told_that_the_session_is_busy(
    ready: Session, provision: Provisioning
) -> None:
    async with ready.hold(Operation.EXECUTE, provision=provision) as hold:
        with pytest.raises(SessionBusy) as refused:
            async with ready.hold(Operation.CHECKPOINT, provision=provision):
                pytest.fail("it was let in")
        assert refused.value.retry_after == 1 and ready.state is State.EXECUTING
        hold.done()
    assert ready.state is State.READY


async def test_a_waiter_that_gives_up_leaves_the_lock_usable(
    ready: Session, provision: Provisioning
) -> None:
    async with ready.hold(Operation.EXECUTE, provision=provision):
        waiting = asyncio.create_task(
            ready.hold(Operation.EXECUTE, provision=provision).__aenter__()
        )
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait({waiting})
    async with ready.hold(Operation.EXECUTE, provision=provision) as hold:
        hold.done()
    assert ready.state is State.READY


async def test_an_expectation_is_checked_again_under_the_lock(
    ready: Session, provision: Provisioning
) -> None:
    with pytest.raises(IncarnationMismatch):
        async with ready.hold(Operation.EXECUTE, expected_incarnation="other", provision=provision):
            pytest.fail("it was let in")
    assert ready.state is State.READY


async def test_torn_is_noted_on_disk_before_it_can_be_true(
    ready: Session, provision: Provisioning
) -> None:
    with pytest.raises(Internal):
        async with ready.hold(Operation.EXECUTE, provision=provision) as hold:
            hold.tearing(Dirty.PRIMING)
            record = saved(ready)
            assert record is not None and record.dirty is Dirty.PRIMING
            raise RuntimeError
    assert ready.state is State.DIRTY
    with pytest.raises(WorkspaceDirty) as refused:
        async with ready.hold(Operation.EXECUTE, provision=provision):
            pytest.fail("it was let in")
    assert refused.value.reason == Dirty.PRIMING
    with pytest.raises(WorkspaceDirty):
        ready.refuse_dirty()


@pytest.mark.parametrize(
    ("operation", "again"), [(Operation.EXECUTE, False), (Operation.RESTORE, True)]
)
@pytest.mark.parametrize("failure", [CheckpointCorrupt(), JailFailed(), OSError(5, "secret")])
async def test_a_failure_that_leaves_it_dirty_says_so(
    ready: Session,
    provision: Provisioning,
    failure: Exception,
    operation: Operation,
    *,
    again: bool,
) -> None:
    with pytest.raises(RunnerError) as told:
        async with ready.hold(operation, provision=provision) as hold:
            hold.tearing(Dirty.RESTORING)
            raise copy(failure)
    body = told.value.body()
    known = failure if isinstance(failure, RunnerError) else Internal()
    assert (body["error"], body["recycle"]) == (known.code, True)
    # A restore may be sent again to a dirty session, and anything else may not.
    assert body["retryable"] is (known.retryable and again)
    assert "secret" not in str(body)


@pytest.mark.parametrize("failure", [CheckpointCorrupt(), JailFailed()])
async def test_a_failure_that_leaves_it_whole_says_what_it_always_says(
    ready: Session, provision: Provisioning, failure: RunnerError
) -> None:
    with pytest.raises(type(failure)) as told:
        async with ready.hold(Operation.RESTORE, provision=provision) as hold:
            hold.tearing(Dirty.RESTORING)
            hold.wiped()
            raise copy(failure)
    assert told.value.body() == failure.body()


async def test_what_a_hold_notes_late_is_not_noted(ready: Session, provision: Provisioning) -> None:
    async with ready.hold(Operation.RESTORE, provision=provision) as hold:
        hold.tearing(Dirty.RESTORING)
        hold.wiped()
    record = ready.record
    for late in (
        lambda: hold.tearing(Dirty.PRIMING),
        lambda: hold.whole(written={"out": "11" * 32}),
        lambda: hold.replaced(primed={}, surfaced={"out": "11" * 32}),
        hold.wiped,
    ):
        with pytest.raises(Internal):
            late()
    assert ready.record == saved(ready) == record


async def test_whole_again_is_ready_again_with_its_metadata(
    ready: Session, provision: Provisioning
) -> None:
    async with ready.hold(Operation.EXECUTE, provision=provision) as hold:
        hold.tearing(Dirty.PRIMING)
        ready.ledger.note_surfaced({"old": "22" * 32, "gone": "33" * 32}, epoch=ready.ledger.epoch)
        hold.whole(primed={"in": Primed("00" * 32)}, written={"out": "11" * 32, "gone": None})
    record = saved(ready)
    assert ready.state is State.READY and record is not None
    assert (record.dirty, set(record.primed)) == (None, {"in"})
    assert set(record.surfaced) == {"old", "out"}


async def test_a_restore_heals_and_boots_again(ready: Session, provision: Provisioning) -> None:
    async with ready.hold(Operation.EXECUTE, provision=provision) as hold:
        hold.tearing(Dirty.PRIMING)
    async with ready.hold(Operation.RESTORE, provision=provision) as hold:
        hold.tearing(Dirty.RESTORING)
        hold.replaced(primed={}, surfaced={"out": "11" * 32})
    assert (ready.state, provision.count) == (State.READY, 2)
    record = saved(ready)
    assert record is not None and record.surfaced == {"out": "11" * 32}


@pytest.mark.parametrize("failure", [JailFailed(), OSError(5, "no disk"), RuntimeError("a bug")])
async def test_a_restore_stands_whatever_becomes_of_the_boot_after_it(
    ready: Session, provision: Provisioning, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    provision.failure = failure
    async with ready.hold(Operation.RESTORE, provision=provision) as hold:
        hold.replaced(primed={}, surfaced={})
    assert (ready.state, provision.count) == (State.FRESH, 2)
    assert "the boot after a restore failed" in caplog.text
    provision.failure = None
    await ready.boot(provision)
    assert ready.state is State.READY


async def test_a_wiped_session_is_fresh_and_knows_nothing(
    ready: Session, provision: Provisioning
) -> None:
    async with ready.hold(Operation.RESTORE, provision=provision) as hold:
        hold.tearing(Dirty.RESTORING)
        hold.wiped()
    assert (ready.state, provision.count) == (State.FRESH, 1)
    assert saved(ready) == Record(session="a", incarnation=ready.incarnation or "")


async def test_what_was_delivered_of_another_tree_is_not_noted(
    ready: Session, provision: Provisioning
) -> None:
    before = ready.ledger.epoch
    ready.ledger.note_surfaced({"out": "11" * 32}, epoch=before)
    assert ready.ledger.bound.surfaced == {"out": "11" * 32}
    async with ready.hold(Operation.RESTORE, provision=provision) as hold:
        hold.wiped()
    ready.ledger.note_surfaced({"late": "22" * 32}, epoch=before)
    assert ready.ledger.bound.surfaced == {}
