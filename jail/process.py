"""Runs one jail: from a profile to facts, ending everything and proving it on every path.

The story is `_life`: start nsjail, let the command run until something ends it, make sure that
nothing is left, say what was measured. Every wait in it is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from jail.facts import Ending, Facts
from jail.freeze import Freeze
from jail.measure import measured, not_started
from jail.profile import Profile
from jail.pump import OutputSink
from jail.report import Kind
from jail.spawn import Descriptor, SpawnFailed
from jail.supervise import Supervision

if TYPE_CHECKING:
    from jail.host import JailHost

#: From nsjail's configuration to the exec of the command: 10 ms, more on a VM that is loaded.
SETUP_TIMEOUT_S = 15.0
#: The CPU counter is not looked at more often than this.
CPU_POLL_S = 0.01


class Jail:
    """One jail, used once.

    `sink` takes output as it comes; `on_started` is called when the command has been exec'd, and
    `on_dead` when nothing of the jail runs any more, which may be before all output was taken.
    What any of them raises ends the jail, and is raised by `run` once nothing is left of it.
    """

    def __init__(
        self,
        host: JailHost,
        profile: Profile,
        *,
        sink: OutputSink | None = None,
        on_started: Callable[[], None] | None = None,
        on_dead: Callable[[], None] | None = None,
    ) -> None:
        self._host = host
        self._profile = profile
        self._sink = sink
        self._on_started = on_started
        self._on_dead = on_dead
        self._ended_by: Ending | None = None
        self._life_task: asyncio.Task[Facts] | None = None
        self._supervision: Supervision | None = None

    async def run(self) -> Facts:
        """Runs it to its proven end.

        Cancelling it ends the jail; the cancellation goes on only when that is done. What kept a
        jail from running is in the facts, never raised.
        """
        if self._life_task is not None:
            raise RuntimeError("a jail is used once")
        self._life_task = asyncio.create_task(self._life())
        self._host.running.add(self)
        try:
            return await asyncio.shield(self._life_task)
        except asyncio.CancelledError:
            self.end(Ending.CANCELLED)
            await self.settled()
            raise
        finally:
            self._host.running.discard(self)

    def end(self, reason: Ending) -> None:
        """Ends the jail and everything in it; the first reason stands. Does not wait.

        A command that has ended by itself has no reason, whatever is asked after.
        """
        supervision = self._supervision
        if self._ended_by is None and not (supervision and supervision.command_is_over):
            self._ended_by = reason
        if supervision is not None:
            supervision.kill()

    def take_terminal(self) -> Descriptor:
        """The master of the command's terminal, non-blocking, the caller's to close.

        To be called in `on_started`; closed already where the profile asks for no terminal.
        """
        if self._supervision is None:
            return Descriptor(-1)
        terminal = self._supervision.watch.terminal
        number, terminal.number = terminal.number, -1
        return Descriptor(number)

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[bool]:
        """Stops every process of the jail while the block runs; whether that was done.

        They go on after FREEZE_LIMIT_S at the latest, whatever the block does.
        """
        if self._supervision is None or self._supervision.command_is_over:
            yield True
            return
        freeze = Freeze(self._supervision.cgroup)
        try:
            yield await asyncio.to_thread(freeze.begin)
        finally:
            freeze.end()

    async def gone(self) -> bool:
        """Whether it is over and nothing is left of it: looked at now, if its end was unproven."""
        if self._life_task is None or not self._life_task.done():
            return False
        if self._supervision is None:
            return True
        await asyncio.to_thread(self._supervision.look_again)
        return self._supervision.proven_empty

    async def settled(self) -> None:
        """Waits until nothing is left of the jail, however often the waiter is cancelled."""
        while self._life_task is not None and not self._life_task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({self._life_task})

    async def _life(self) -> Facts:
        try:
            spawned = await self._host.spawn(self._profile.network)
        except SpawnFailed as error:
            return not_started(self._host.enforcement, error.step, self._ended_by)
        self._supervision = supervision = Supervision(
            spawned, self._profile, sink=self._sink, on_end=self.end, on_dead=self._on_dead
        )
        try:
            if self._ended_by is None and supervision.configure(self._host.fixed):
                await self._until_over(supervision)
        finally:
            # Also when the loop itself is being shut down and this task is cancelled.
            await supervision.finish()
            await self._host.release(spawned)
        if supervision.failure is not None:
            raise supervision.failure
        return measured(supervision, self._host.enforcement, self._ended_by)

    async def _until_over(self, supervision: Supervision) -> None:
        """Returns when the command has ended, or could not start, or somebody ended it."""
        setup_ends = time.monotonic() + SETUP_TIMEOUT_S
        if not await supervision.until(self._is_set_up, setup_ends):
            self.end(Ending.SETUP_TIMEOUT)
        started = supervision.report(Kind.STARTED)
        if started is None:
            return
        if self._on_started is not None:
            supervision.guard(self._on_started)
        supervision.begin_output()
        # The deadline counts from the exec, on the clock that init read.
        deadline = started.at_ns / 1e9 + self._profile.limits.wall_ms / 1000
        while not await supervision.until(self._is_over, self._next_look(supervision, deadline)):
            if time.monotonic() >= deadline:
                self.end(Ending.DEADLINE)
            elif self._cpu_left_ns(supervision) <= 0:
                self.end(Ending.CPU_LIMIT)

    def _is_set_up(self) -> bool:
        assert self._supervision is not None
        return self._is_over() or self._supervision.report(Kind.STARTED) is not None

    def _is_over(self) -> bool:
        assert self._supervision is not None
        return self._ended_by is not None or self._supervision.command_is_over

    def _next_look(self, supervision: Supervision, deadline: float) -> float:
        """When the CPU limit could be reached at the earliest, or the deadline if that is first."""
        left_s = self._cpu_left_ns(supervision) / 1e9 / (os.cpu_count() or 1)
        return min(deadline, time.monotonic() + max(left_s, CPU_POLL_S))

    def _cpu_left_ns(self, supervision: Supervision) -> int:
        return self._profile.limits.cpu_ms * 1_000_000 - supervision.cpu_used_ns()
