"""Every execution of this daemon, however it was asked for: plain, streamed, with a key, cancelled.

One task each, owned here. A request that has no key owns its execution: when it goes, it takes it
along. With a key the execution goes on alone, and its result waits for whoever asks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from runner.errors import IdempotencyMismatch, NotFound
from runner.execution.encoding import encode, is_small
from runner.execution.executor import Executed, Executor
from runner.execution.idempotency import Key, Remembered
from runner.execution.running import Execution, Finished, Life, Order
from runner.finish import finish_in_thread
from runner.session.lifecycle import Operation
from runner.session.session import Provision, Session
from runner.vm.gate import Gate

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attended:
    """An execution as one request meets it: its own, or (`replayed`) one that was there before."""

    execution: Execution
    replayed: bool


class Executions:
    """Starts, finds, joins and ends executions."""

    def __init__(
        self,
        *,
        executor: Executor,
        session: Session,
        gate: Gate,
        provision: Provision,
        results_max_bytes: int,
    ) -> None:
        self._executor = executor
        self._session = session
        self._gate = gate
        self._provision = provision
        self._running: set[Execution] = set()
        self._keyed: dict[Key, Execution] = {}
        self._results: Remembered[Execution] = Remembered(results_max_bytes)
        #: Of the session: what an earlier one made may have been changed by it.
        self._newest: Execution | None = None
        self._closing = False

    @contextlib.asynccontextmanager
    async def attend(self, order: Order) -> AsyncIterator[Attended]:
        """Starts what is ordered or joins what its key names. Leaving early ends what has no key.

        Raises, before anything is bound or changed, for a stranger, another incarnation, and a key
        that was used for another body.
        """
        if order.session_id is not None:
            self._session.refuse_stranger(order.session_id)
            self._session.expect(order.expected_incarnation)
        known = self._known(order)
        execution = known or self._start(order)
        try:
            yield Attended(execution, known is not None)
        finally:
            if order.key is None:
                # The session is free only when its task has seen the jail reaped.
                execution.cancel()

    def received(self, execution: Execution) -> None:
        """A client has the whole result: what it names is surfaced now, whoever asked first."""
        finished = execution.finished
        if finished is None or finished.life is None or execution.delivered:
            return
        execution.delivered = True
        delivered = dict(finished.delivered)
        if execution is not self._newest and self._session.record is not None:
            # A later execution has returned what it found: only what nobody has said since counts.
            surfaced = self._session.record.surfaced
            delivered = {path: sha for path, sha in delivered.items() if path not in surfaced}
        self._session.ledger.note_surfaced(delivered, epoch=finished.life.epoch)

    def cancel(self, name: str, *, session_id: str | None) -> bool:
        """Ends what `name` (an execution id or an Idempotency-Key) means; does not wait.

        False if it was over already. Raises `NotFound`.
        """
        key = Key(session_id, name)
        for execution in self._running:
            if name == execution.id or key == execution.key:
                execution.cancel()
                return True
        if self._results.get(key) is not None:
            return False
        raise NotFound("no execution of that name is known")

    def forget(self) -> None:
        """No result is remembered: the VM is another's now, and it may use the same keys."""
        self._results.clear()
        self._newest = None

    async def aclose(self) -> None:
        """Cancels all of them and waits for their ends, each bounded; a new one is cancelled."""
        self._closing = True
        for execution in self._running:
            execution.cancel()
        await asyncio.gather(*(execution.settled() for execution in self._running))

    def _known(self, order: Order) -> Execution | None:
        if order.key is None:
            return None
        execution = self._keyed.get(order.key)
        if execution is None:
            execution = self._results.get(order.key)
            if execution is not None and not self._still_true(execution):
                self._results.drop(order.key)
                execution = None
        if execution is not None and execution.digest != order.digest:
            raise IdempotencyMismatch(field="Idempotency-Key")
        return execution

    def _still_true(self, execution: Execution) -> bool:
        """A result tells of a tree; after a restore or a wipe the same request means another."""
        life = execution.finished.life if execution.finished else None
        return life is None or life == self._life()

    def _life(self) -> Life:
        return Life(self._session.incarnation, self._session.ledger.epoch)

    def _start(self, order: Order) -> Execution:
        execution = Execution(key=order.key, digest=order.digest)
        if self._closing:
            execution.cancel()
        self._running.add(execution)
        if order.key is not None:
            self._keyed[order.key] = execution
        execution.start(self._work(order, execution)).add_done_callback(
            lambda _: self._over(execution)
        )
        return execution

    def _over(self, execution: Execution) -> None:
        self._running.discard(execution)
        execution.transcript.discard()
        key = execution.key
        if key is None:
            return
        del self._keyed[key]
        # A failure of ours frees the key: nothing was done that a retry could do twice.
        if execution.finished is not None:
            self._results.put(key, execution, len(execution.finished.body))

    async def _work(self, order: Order, execution: Execution) -> Finished:
        in_session = order.session_id is not None
        work = self._in_session if in_session else self._stateless
        finished = await execution.waited(lambda: work(order, execution))
        if finished is not None:
            return finished
        life = self._life() if in_session else None
        return await _finished(self._executor.cancelled(order.plan), life)

    async def _stateless(self, order: Order, execution: Execution) -> Finished:
        async with self._gate.inside(leave=execution.cancel):
            return await _finished(await self._executor.stateless(order.plan, execution), None)

    async def _in_session(self, order: Order, execution: Execution) -> Finished:
        assert order.session_id is not None
        self._session.admit(order.session_id, expected_incarnation=order.expected_incarnation)
        async with self._session.hold(
            Operation.EXECUTE,
            expected_incarnation=order.expected_incarnation,
            provision=self._provision,
        ) as hold:
            executed = await self._executor.in_session(order.plan, execution, hold)
            self._newest = execution
            return await _finished(executed, self._life())


async def _finished(executed: Executed, life: Life | None) -> Finished:
    result = executed.result
    run = result.run
    body = encode(result) if is_small(result) else await finish_in_thread(encode, result)
    return Finished(
        body=body,
        delivered=executed.delivered,
        life=life,
        summary={
            "outcome": run.outcome.kind,
            "fault": run.outcome.fault,
            "wall_ms": run.wall_time,
            "cpu_ms": run.cpu_time,
            "memory": run.memory,
            "files": len(executed.result.files),
        },
    )
