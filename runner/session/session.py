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
    RunnerError,
    SessionBusy,
    SessionUnbound,
    WorkspaceDirty,
)
from runner.finish import finish
from runner.session import lifecycle
from runner.session.hold import Hold
from runner.session.incarnation import mint
from runner.session.ledger import Ledger
from runner.session.lifecycle import End, Operation, State
from runner.session.record import Dirty, Record, Store

log = logging.getLogger(__name__)

#: Makes the workspace of a fresh incarnation; idempotent. It may run for the first use of a session
#: and again after a wipe or a restore.
Provision = Callable[[], Awaitable[None]]


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
        self._terminating = False
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
        """The incarnation id, once one exists."""
        return self.ledger.record.incarnation if self.ledger.record else None

    def refuse_stranger(self, session_id: str) -> None:
        """Raises if this VM belongs to another session."""
        bound = self.record if self._state is not State.TERMINATED else None
        if bound is not None and bound.session != session_id:
            raise WorkspaceDirty("this VM belongs to another session", reason=Dirty.OTHER)

    def bind(self, session_id: str) -> None:
        """Binds the VM to a session, or raises if it belongs to another. Idempotent."""
        self.refuse_stranger(session_id)
        row = lifecycle.find(self._state, Operation.BIND)
        if row is None:
            return
        incarnation = mint(session_id, vm_id=self.vm_id)
        self.ledger.write(Record(session=session_id, incarnation=incarnation))
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
        boots_first = lifecycle.find(State.FRESH, operation) is None
        if boots_first and self._state in (State.FRESH, State.PROVISIONING):
            await self.boot(provision)
        async with self.paused():
            self.expect(expected_incarnation)
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
        async with self.paused():
            if self._state is State.FRESH:
                await self._boot(provision)
            elif lifecycle.find(self._state, Operation.EXECUTE) is None:
                raise self._refusal()

    async def _boot(self, provision: Provision) -> None:
        async with self._move(Operation.BOOT) as hold:
            await provision()
            self.ledger.write(replace(self.ledger.bound, provisioned=self.ledger.bound.incarnation))
            hold.done()

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No operation is under way while this is held. Raises `SessionBusy`."""
        if self._terminating:
            raise SessionBusy("the VM is being terminated", retry_after=1)
        async with self._locked():
            yield

    async def terminate(
        self, *, end_jails: Callable[[], Awaitable[None]], wipe: Callable[[], None]
    ) -> None:
        """Ends whoever holds the session, wipes, and is bound to nothing any more. Idempotent.

        `wipe` blocks. When it fails the session is dirty.
        """
        self._terminating = True
        try:
            await end_jails()
            async with self._locked():
                await finish(asyncio.to_thread(self._end, wipe))
        finally:
            self._terminating = False

    def _end(self, wipe: Callable[[], None]) -> None:
        row = lifecycle.find(self._state, Operation.TERMINATE)
        if row is None:
            return
        end = End.TORN
        try:
            if self.record is not None:
                self.ledger.write(replace(self.record, dirty=Dirty.ENDED))
            wipe()
            if self.record is not None:
                self.ledger.write(replace(self.record.emptied(), terminated=True), durable=True)
            end = End.DONE
            self.ledger.epoch += 1
        finally:
            self._state = lifecycle.after(row, self._state, end)
            log.info("session ended", extra={"state": self._state.value})

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._lock_wait):
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
        hold = Hold(self.ledger, row, origin)
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
        reason = (self.record.dirty if self.record else None) or "dirty"
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
