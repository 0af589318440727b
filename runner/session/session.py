"""The one session of this VM: its state, its lock, and its record on disk.

Moves by `lifecycle.TABLE` only. Runs no code and touches no workspace: provisioning is a function
that it is given, and whoever holds it says how the operation ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace

from runner.errors import (
    IncarnationMismatch,
    RunnerError,
    SessionBusy,
    SessionUnbound,
    WorkspaceDirty,
)
from runner.session import lifecycle
from runner.session.incarnation import mint
from runner.session.lifecycle import End, Operation, Row, State
from runner.session.record import Record, Store
from runner.workspace.priming import Primed

log = logging.getLogger(__name__)

#: Makes the workspace of a fresh incarnation; idempotent. It may run for the first use of a session
#: and again after a wipe or a restore.
Provision = Callable[[], Awaitable[None]]

#: What `dirty` may say; a stable sub-code of the wire.
RESTORING, PRIMING, MISSING, UNREADABLE, OTHER, ENDED = (
    "restoring",
    "priming",
    "workspace_missing",
    "state_unreadable",
    "other_session",
    "terminated",
)


class Hold:
    """One operation's hold of the session. Says how it ended by what was called last."""

    def __init__(self, session: Session, row: Row, origin: State) -> None:
        self._session = session
        self.row = row
        self.origin = origin
        self.end = End.UNDONE
        #: The workspace is another tree, whole, and the record says so.
        self.is_replaced = False

    @property
    def record(self) -> Record:
        """The record as it is now."""
        return self._session.bound

    def tearing(self, reason: str) -> None:
        """From here to `whole` or `wiped` the workspace may be half-changed: noted before it is."""
        self._session.write(replace(self.record, dirty=reason))
        self.end = End.TORN

    def whole(
        self,
        *,
        primed: Mapping[str, Primed] | None = None,
        surfaced: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        """The half-change is over, with this metadata. The operation itself may yet fail."""
        record = self.record
        self._session.write(
            replace(
                record,
                dirty=None,
                primed=record.primed if primed is None else dict(primed),
                surfaced=record.surfaced if surfaced is None else dict(surfaced),
            ),
            durable=durable,
        )
        self.end = End.UNDONE

    def replaced(self, *, primed: Mapping[str, Primed], surfaced: Mapping[str, str]) -> None:
        """The workspace is another tree now, whole; nothing vouches for its provisioning yet."""
        self._session.write(
            replace(
                self.record,
                provisioned=None,
                dirty=None,
                primed=dict(primed),
                surfaced=dict(surfaced),
            ),
            durable=True,
        )
        self._session.epoch += 1
        self.is_replaced = True
        self.end = End.DONE

    def wiped(self) -> None:
        """The workspace and its metadata are empty."""
        self._session.write(self.record.emptied(), durable=True)
        self._session.epoch += 1
        self.end = End.WIPED

    def done(self) -> None:
        """The operation did what was asked."""
        self.end = End.DONE


class Session:
    """Binding, state, lock and record. One per daemon."""

    def __init__(
        self, store: Store, record: Record | None, *, state: State, lock_wait: float
    ) -> None:
        """`lock_wait`: seconds that an operation waits for the one before it."""
        self._store = store
        self._record = record
        self._state = state
        self._lock = asyncio.Lock()
        self._booting: asyncio.Task[None] | None = None
        self._lock_wait = lock_wait
        #: Goes up whenever the workspace becomes another tree.
        self.epoch = 0
        #: What the platform calls this VM, once it has said so.
        self.vm_id: str | None = None

    @property
    def state(self) -> State:
        """Where the session is."""
        return self._state

    @property
    def record(self) -> Record | None:
        """The record, once a session is bound."""
        return self._record

    @property
    def bound(self) -> Record:
        """The record of a session that is bound."""
        assert self._record is not None
        return self._record

    @property
    def disk_key(self) -> bytes:
        """A random key that lives in this disk's state directory and nowhere else."""
        return self._store.key

    @property
    def incarnation(self) -> str | None:
        """The incarnation id, once one exists."""
        return self._record.incarnation if self._record else None

    def write(self, record: Record, *, durable: bool = False) -> None:
        """Puts `record` on disk, then takes it as the truth. For `Hold` only."""
        self._store.save(record, durable=durable)
        self._record = record

    def refuse_stranger(self, session_id: str) -> None:
        """Raises if this VM belongs to another session."""
        bound = self._record if self._state is not State.TERMINATED else None
        if bound is not None and bound.session != session_id:
            raise WorkspaceDirty("this VM belongs to another session", reason=OTHER)

    def bind(self, session_id: str) -> None:
        """Binds the VM to a session, or raises if it belongs to another. Idempotent."""
        self.refuse_stranger(session_id)
        row = lifecycle.find(self._state, Operation.BIND)
        if row is None:
            return
        incarnation = mint(session_id, vm_id=self.vm_id)
        self.write(Record(session=session_id, incarnation=incarnation))
        self._state = lifecycle.after(row, self._state, End.DONE)
        log.info("session bound", extra={"incarnation": incarnation})

    def admit(self, session_id: str, *, expected_incarnation: str | None) -> None:
        """Lets a valid request in: binds the VM if it is unbound, or raises and changes nothing."""
        self.refuse_stranger(session_id)
        self.expect(expected_incarnation)
        self.bind(session_id)

    def require_bound(self, session_id: str) -> None:
        """Raises unless the VM is bound to this session: for what must not bind by itself."""
        self.refuse_stranger(session_id)
        if self._state in (State.UNBOUND, State.TERMINATED):
            raise SessionUnbound("no operation of this session has run here")

    def refuse_dirty(self) -> None:
        """Raises while the workspace may be half-changed: not even looking would be truthful."""
        if self._state is State.DIRTY:
            raise self._refusal()

    def expect(self, incarnation: str | None) -> None:
        """Raises `IncarnationMismatch` if the caller expects another incarnation than this."""
        if incarnation is not None and incarnation != self.incarnation:
            raise IncarnationMismatch("nothing was changed")

    def note_surfaced(self, delivered: Mapping[str, str], *, epoch: int) -> None:
        """These outputs (path → hash) have reached the client, if they are still of this tree.

        Nothing fails when this cannot be written: the client is then given them once more.
        """
        if not delivered or epoch != self.epoch or self._record is None:
            return
        surfaced = self._record.surfaced | dict(delivered)
        try:
            self.write(replace(self._record, surfaced=surfaced))
        except OSError:
            log.exception("what was delivered could not be noted")

    @contextlib.asynccontextmanager
    async def hold(
        self,
        operation: Operation,
        *,
        expected_incarnation: str | None = None,
        provision: Provision,
    ) -> AsyncIterator[Hold]:
        """Holds the session for `operation`; waits at most `lock_wait` for the one before.

        A fresh session is provisioned first, unless the operation may start without. Raises
        `SessionBusy`, `WorkspaceDirty` or `IncarnationMismatch`, and then nothing has changed.
        """
        self.expect(expected_incarnation)
        boots_first = lifecycle.find(State.FRESH, operation) is None
        if boots_first and self._state in (State.FRESH, State.PROVISIONING):
            await self.boot(provision)
        await self._acquire()
        try:
            self.expect(expected_incarnation)
            if boots_first and self._state is State.FRESH:
                # Wiped while we waited for the lock.
                await self._boot(provision)
            async with self._move(operation) as hold:
                yield hold
            if hold.end is End.DONE and self._state is State.FRESH:
                await self._boot_again(provision)
        finally:
            self._lock.release()

    async def _boot_again(self, provision: Provision) -> None:
        """After a restore. It stands whatever becomes of the boot: the next use boots once more."""
        try:
            await self._boot(provision)
        except (RunnerError, OSError):
            log.exception("the boot after a restore failed")

    async def boot(self, provision: Provision) -> None:
        """Provisions a fresh session; a no-op on a ready one.

        Concurrent boots are one: all wait for it, however long it takes, and it goes on when the
        one that began it is gone.
        """
        if self._booting is None or self._booting.done():
            self._booting = asyncio.create_task(self._boot_alone(provision), name="boot")
            # Whoever waits takes its failure; with nobody waiting it was logged where it happened.
            self._booting.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._booting)

    async def _boot_alone(self, provision: Provision) -> None:
        await self._acquire()
        try:
            if self._state is State.FRESH:
                await self._boot(provision)
            elif lifecycle.find(self._state, Operation.EXECUTE) is None:
                raise self._refusal()
        finally:
            self._lock.release()

    async def _boot(self, provision: Provision) -> None:
        async with self._move(Operation.BOOT) as hold:
            await provision()
            self.write(replace(self.bound, provisioned=self.bound.incarnation))
            hold.done()

    async def _acquire(self) -> None:
        try:
            async with asyncio.timeout(self._lock_wait):
                await self._lock.acquire()
        except TimeoutError:
            raise SessionBusy(
                f"the session is {self._state.value}", retry_after=1, state=self._state.value
            ) from None

    @contextlib.asynccontextmanager
    async def _move(self, operation: Operation) -> AsyncIterator[Hold]:
        origin = self._state
        row = lifecycle.find(origin, operation)
        if row is None:
            raise self._refusal()
        hold = Hold(self, row, origin)
        assert row.during is not None
        self._state = row.during
        try:
            yield hold
        finally:
            self._state = lifecycle.after(row, origin, hold.end)
            if self._state is not origin:
                log.info(
                    "session moved",
                    extra={"operation": operation.value, "end": hold.end.value}
                    | {"state_before": origin.value, "state": self._state.value},
                )

    def _refusal(self) -> Exception:
        if self._state in (State.UNBOUND, State.TERMINATED):
            return SessionUnbound("no operation of this session has run here")
        reason = (self._record.dirty if self._record else None) or "dirty"
        return WorkspaceDirty("it may be half-changed; restore into it or recycle", reason=reason)


def adopted_state(record: Record | None, *, workspace_present: bool) -> State:
    """The state in which a daemon that starts on this disk finds the session. Pure."""
    if record is None:
        return State.UNBOUND
    if record.terminated:
        return State.TERMINATED
    if record.dirty is not None or (record.provisioned and not workspace_present):
        return State.DIRTY
    return State.READY if record.provisioned == record.incarnation else State.FRESH
