"""The one session of this VM: its binding, its state and its lock.

Moves by `lifecycle.TABLE` only. Runs no code and touches no workspace: provisioning is a function
that it is given, and whoever holds it says how the operation ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from runner.errors import (
    IncarnationMismatch,
    SessionBusy,
    SessionUnbound,
    WorkspaceDirty,
)
from runner.finish import finish
from runner.session import lifecycle
from runner.session.ending import end
from runner.session.guests import Guests
from runner.session.hold import Hold
from runner.session.incarnation import mint, mint_key
from runner.session.ledger import Ledger
from runner.session.lifecycle import End, Operation, State
from runner.session.record import Dirty, Record, Store
from runner.workspace.full import full_disk_is_told

log = logging.getLogger(__name__)

#: Makes the workspace of a fresh incarnation; idempotent. It may run for the first use of a session
#: and again after a wipe or a restore.
Provision = Callable[[], Awaitable[None]]

#: Seconds in which an operation has to end once its jail has, when the VM is terminated.
ENDING_GRACE = 1.0


class Session:
    """Binding, state, lock and record. One per daemon."""

    def __init__(
        self, store: Store, record: Record | None, *, state: State, lock_wait: float
    ) -> None:
        """`lock_wait`: seconds that an operation waits for the one before it."""
        self.ledger = Ledger(store, record)
        self._state = state
        self._lock = asyncio.Lock()
        self._booting: asyncio.Task[None] | None = None
        self._lock_wait = lock_wait
        #: The task of the operation that holds the session.
        self._holder: asyncio.Task[object] | None = None
        #: How many requests to terminate are under way.
        self._terminating = 0
        self.guests = Guests()
        #: What the platform calls this VM, once it has said so.
        self.vm_id: str | None = None

    @property
    def state(self) -> State:
        """Where the session is."""
        return self._state

    @property
    def record(self) -> Record | None:
        """The record, once a session is bound."""
        return self.ledger.record

    @property
    def incarnation(self) -> str | None:
        """The incarnation id, while there is one: what was terminated has none any more."""
        if self.record is None or self._state is State.TERMINATED:
            return None
        return self.record.incarnation or None

    def refuse_stranger(self, session_id: str) -> None:
        """Raises if this VM belongs to another session."""
        bound = self.record if self._state is not State.TERMINATED else None
        if bound is not None and bound.session != session_id:
            if bound.dirty is Dirty.UNREADABLE:
                raise WorkspaceDirty("whose it is cannot be told", reason=Dirty.UNREADABLE)
            raise WorkspaceDirty("this VM belongs to another session", reason=Dirty.OTHER)

    def bind(self, session_id: str) -> None:
        """Binds the VM to a session, or raises if it belongs to another. Idempotent."""
        self.refuse_stranger(session_id)
        row = lifecycle.find(self._state, Operation.BIND)
        if row is None:
            return
        self._refuse_ending()
        incarnation = mint(session_id, vm_id=self.vm_id)
        with full_disk_is_told("there is no room to note whose this VM is"):
            key = mint_key(session_id, vm_id=self.vm_id)
            self.ledger.begin(Record(session=session_id, incarnation=incarnation), key=key)
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
        admitted = self.incarnation
        boots_first = lifecycle.find(State.FRESH, operation) is None
        if boots_first and self._state in (State.FRESH, State.PROVISIONING):
            await self.boot(provision)
        async with self.paused():
            self.expect(expected_incarnation)
            if self.incarnation != admitted:
                raise SessionUnbound("the session was terminated meanwhile")
            if boots_first and self._state is State.FRESH:
                # Wiped while we waited for the lock.
                await self._boot(provision)
            async with self._move(operation) as hold:
                yield hold
            if hold.end is End.DONE and self._state is State.FRESH:
                await self._boot_again(provision)

    async def _boot_again(self, provision: Provision) -> None:
        """After a restore. It stands whatever becomes of the boot: the next use boots once more."""
        try:
            await self._boot(provision)
        except Exception:
            log.exception("the boot after a restore failed")

    async def boot(self, provision: Provision) -> None:
        """Provisions a fresh session; a no-op on a ready one.

        Concurrent boots are one: all wait for it, however long it takes, and it goes on when the
        one that began it is gone. One that is provisioned is not waited for, whatever it is doing.
        """
        if self._is_provisioned:
            return
        if self._booting is None or self._booting.done():
            self._booting = asyncio.create_task(self._boot_alone(provision), name="boot")
            # Whoever waits takes its failure; with nobody waiting it was logged where it happened.
            self._booting.add_done_callback(lambda task: task.cancelled() or task.exception())
        booting = self._booting
        try:
            await asyncio.shield(booting)
        except asyncio.CancelledError:
            if booting.cancelled() and not _is_cancelled():
                raise SessionBusy("the VM is being terminated", retry_after=1) from None
            raise

    @property
    def _is_provisioned(self) -> bool:
        record = self.record
        in_use = self._state is State.READY or (
            self._state in lifecycle.HELD and self._state is not State.RESTORING
        )
        return in_use and record is not None and record.provisioned == record.incarnation

    async def aclose(self) -> None:
        """Ends a boot that nobody waits for any more; its jail ends with it."""
        if self._booting is not None:
            self._booting.cancel()
            await asyncio.wait({self._booting})

    async def _boot_alone(self, provision: Provision) -> None:
        async with self.paused():
            if self._state is State.FRESH:
                await self._boot(provision)
            elif lifecycle.find(self._state, Operation.EXECUTE) is None:
                raise self._refusal()

    async def _boot(self, provision: Provision) -> None:
        async with self._move(Operation.BOOT) as hold:
            await provision()
            with full_disk_is_told("there is no room to note that it is provisioned"):
                self.ledger.amend(lambda record: replace(record, provisioned=record.incarnation))
            hold.done()

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No operation is under way while this is held. Raises `SessionBusy`."""
        self._refuse_ending()
        async with self._locked():
            # Whoever waited while that began is not let in before it.
            self._refuse_ending()
            yield

    def _refuse_ending(self) -> None:
        if self._terminating:
            raise SessionBusy("the VM is being terminated", retry_after=1)

    async def terminate(
        self, *, end_jails: Callable[[], Awaitable[None]], wipe: Callable[[], None]
    ) -> None:
        """Ends whoever holds the session, wipes, and is bound to nothing any more. Idempotent.

        `wipe` blocks. When it fails the session is dirty.
        """
        self._terminating += 1
        try:
            await end_jails()
            await self._dislodge()
            async with self._locked():
                # Again: the operation that held it may have begun others, as an attach does.
                await end_jails()
                await finish(self._end(wipe))
        finally:
            self._terminating -= 1

    async def _dislodge(self) -> None:
        """What holds the session ends with its jail; what has none (a client that sends or reads
        slowly) is cancelled."""
        with contextlib.suppress(SessionBusy):
            async with self._locked(ENDING_GRACE):
                return
        if self._holder is not None:
            self._holder.cancel()

    async def _end(self, wipe: Callable[[], None]) -> None:
        self._state, failure = await asyncio.to_thread(end, self.ledger, self._state, wipe)
        if failure is not None:
            raise failure

    @contextlib.asynccontextmanager
    async def _locked(self, wait: float | None = None) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._lock_wait if wait is None else wait):
                await self._lock.acquire()
        except TimeoutError:
            raise SessionBusy(
                f"the session is {self._state.value}", retry_after=1, state=self._state.value
            ) from None
        try:
            yield
        finally:
            self._lock.release()

    @contextlib.asynccontextmanager
    async def _move(self, operation: Operation) -> AsyncIterator[Hold]:
        origin = self._state
        row = lifecycle.find(origin, operation)
        if row is None:
            raise self._refusal()
        hold = Hold(self.ledger, row, origin, is_shared=bool(self.guests))
        assert row.during is not None
        self._state = row.during
        self._holder = asyncio.current_task()
        try:
            with hold.telling(operation):
                yield hold
        finally:
            self._holder = None
            hold.close()
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
        reason = (self.record.dirty if self.record else None) or "dirty"
        return WorkspaceDirty("it may be half-changed; restore into it or recycle", reason=reason)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
