"""One execution, from the moment it is asked for until its result: its task, its end, its text.

Owned by `executions`, worked on by `executor`, followed by whoever waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

from jail.facts import Ending, Facts
from jail.process import Jail
from runner.errors import RunnerError
from runner.execution.idempotency import Key
from runner.execution.request import Plan, new_id
from runner.execution.transcript import Transcript

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run, and where. `digest` is of the body, to tell a retry from a mix-up."""

    plan: Plan
    session_id: str | None = None
    expected_incarnation: str | None = None
    key: Key | None = None
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Finished:
    """A result, as every client gets it.

    `delivered` is what a client has received once it has it (path → hash), true of the workspace
    tree `life`. `summary` is for the log.
    """

    body: bytes
    delivered: Mapping[str, str]
    life: Life | None
    summary: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Life:
    """One tree of one incarnation: a restore or a wipe begins another."""

    incarnation: str | None
    epoch: int


class _Phase(Enum):
    NEW = auto()
    #: For a place or for the session: nothing of it exists yet.
    WAITING = auto()
    WORKING = auto()


class Execution:
    """Started once by `start`; `result` waits for it, `cancel` ends it, neither owns it.

    It does not hold its plan: a remembered result must not keep the inputs in memory.
    """

    def __init__(self, *, key: Key | None, digest: bytes) -> None:
        self.id = new_id()
        self.key = key
        self.digest = digest
        self.transcript = Transcript()
        self.cancelled = False
        #: Some client has received the result.
        self.delivered = False
        self._phase = _Phase.NEW
        self._jail: Jail | None = None
        self._transfer: asyncio.Future[Any] | None = None
        self._task: asyncio.Task[Finished] | None = None

    # For its owner

    def start(self, work: Coroutine[Any, Any, Finished]) -> asyncio.Task[Finished]:
        """Runs `work` in a task that no waiter's end ends."""
        self._task = asyncio.create_task(self._life(work), name=f"execution {self.id}")
        self._task.add_done_callback(_note_failure)
        return self._task

    async def _life(self, work: Coroutine[Any, Any, Finished]) -> Finished:
        try:
            return await work
        finally:
            self.transcript.close()

    async def waited(self, wait: Callable[[], Awaitable[Finished]]) -> Finished | None:
        """Runs `wait`, which calls `began` when it has waited enough; None if cancelled before."""
        if self.cancelled:
            return None
        self._phase = _Phase.WAITING
        try:
            return await wait()
        except asyncio.CancelledError:
            # By `cancel`, or by what cannot wait for this task any longer (a session's end):
            # whoever waits for a result is told so in either case.
            self.cancelled = True
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return None

    # For who works on it

    def began(self) -> None:
        """It has its workspace: from here on only its jails are ended, and it has a result."""
        self._phase = _Phase.WORKING

    async def run(self, jail: Jail) -> Facts:
        """Runs one of its jails; at once to an end if it has been cancelled."""
        self._jail = jail
        try:
            if self.cancelled:
                jail.end(Ending.CANCELLED)
            return await jail.run()
        finally:
            self._jail = None

    async def transfer(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Waits for others than a jail: for inputs or for outputs. None if cancelled meanwhile."""
        transfer: asyncio.Future[T] = asyncio.ensure_future(work)
        self._transfer = transfer
        try:
            if self.cancelled:
                transfer.cancel()
            return await transfer
        except asyncio.CancelledError:
            if not self.cancelled or not transfer.cancelled():
                transfer.cancel()
                raise
            return None
        finally:
            self._transfer = None

    # For who waits for it

    @property
    def is_over(self) -> bool:
        """Whether there is a result or a failure."""
        return self._task is not None and self._task.done()

    @property
    def finished(self) -> Finished | None:
        """The result, if there is one by now."""
        task = self._task
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    async def result(self) -> Finished:
        """The result; raises what kept it from having one. Cancelling the waiter ends nothing."""
        assert self._task is not None
        return await asyncio.shield(self._task)

    async def settled(self) -> None:
        """Waits until nothing of it runs."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def cancel(self) -> None:
        """Asks for its end: its jail is killed, its wait given up. Does not wait; idempotent."""
        if self.cancelled or self.is_over:
            return
        self.cancelled = True
        if self._jail is not None:
            self._jail.end(Ending.CANCELLED)
        elif self._transfer is not None:
            self._transfer.cancel()
        elif self._phase is _Phase.WAITING and self._task is not None:
            self._task.cancel()


def _note_failure(task: asyncio.Task[Finished]) -> None:
    """Whoever waits is told; that nobody may be waiting is no reason to lose it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        if isinstance(error, RunnerError):
            log.info("an execution failed", extra={"error": error.code, "reason": error.reason})
        else:
            log.error("an execution failed", exc_info=error)
