"""Holds one spawned nsjail: its pumps, its reports and its end. `process` decides, this does.

Everything that has to be let go of is let go of in `finish`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from jail.cgroup import Cgroup
from jail.config import Fixed, render
from jail.facts import Counters, Ending
from jail.profile import Profile
from jail.pump import LogPump, OutputPump, OutputSink, feed
from jail.report import Kind, Report
from jail.spawn import Descriptor, Spawned
from jail.watch import Watch

#: How long a namespace may take to be torn down before the SIGKILL is sent wider.
KILL_GRACE_S = 0.5
#: After that it stays unproven: nobody can end a process in an uninterruptible sleep.
KILL_TIMEOUT_S = 5.0
#: For a sink that has not taken all of the output by the time that the jail is dead.
DRAIN_TIMEOUT_S = 10.0


class Supervision:
    """From a spawned nsjail until nothing of it is left."""

    def __init__(
        self,
        spawned: Spawned,
        profile: Profile,
        *,
        sink: OutputSink | None,
        on_end: Callable[[Ending], None],
        on_dead: Callable[[], None] | None = None,
    ) -> None:
        self.cgroup: Cgroup = spawned.cgroup
        self.before = self.counters = Counters()
        self.proven_empty = False
        self.setup_failure: str | None = None
        #: What a callback of the caller's raised.
        self.failure: BaseException | None = None
        self.over_at_ns = 0
        self._spawned = spawned
        self._profile = profile
        self._on_end = on_end
        self._on_dead = on_dead
        self._tasks: list[asyncio.Task[None]] = []
        keep = profile.limits.output_bytes
        self.stdout = OutputPump(
            spawned.stdout.number,
            "stdout",
            keep,
            sink=sink,
            on_overflow=lambda: on_end(Ending.OUTPUT_LIMIT),
        )
        self.stderr = OutputPump(spawned.stderr.number, "stderr", keep, sink=sink)
        self.log = LogPump(spawned.log.number)
        self.watch = Watch(spawned)

    def configure(self, fixed: Fixed) -> bool:
        """Sets the limits, lets nsjail go on and its input flow; False if that cannot be."""
        spawned, profile = self._spawned, self._profile
        try:
            network = spawned.network
            config = render(
                profile,
                fixed,
                report_fd=spawned.report_fd,
                resolv_conf=None if network is None else network.resolv_conf,
            )
            # Before the limits: what they end at once counts as well.
            self.before = spawned.cgroup.counters()
            spawned.cgroup.set_limits(profile.limits)
        except ValueError:
            self.setup_failure = "bad_profile"
            return False
        except OSError:
            self.setup_failure = "cgroup"
            return False
        self._start(_feed_and_close(spawned.config, config))
        self._start(_feed_and_close(spawned.stdin, profile.stdin))
        self._start(self.log.run())
        return True

    def begin_output(self) -> None:
        """Reads the command's output from here on: when its start has been said, and never before.

        A short command may have written more than it may by then; ended for that earlier, it would
        be taken for one that never ran. Until then the pipes hold it.
        """
        self._start(self.stdout.run())
        self._start(self.stderr.run())

    def report(self, kind: Kind) -> Report | None:
        """What init has said of this, if it has."""
        return self.watch.reports.get(kind)

    def cpu_used_ns(self) -> int:
        """CPU time of the command and all it started, so far; 0 where nothing counts it."""
        used_ns = self.cgroup.cpu_ns()
        return 0 if used_ns is None else used_ns - self.watch.setup_cpu_ns

    @property
    def command_is_over(self) -> bool:
        """Whether the command has ended, has not been started, or nothing can run it any more."""
        said = self.watch.reports.keys()
        return bool(said & {Kind.EXITED, Kind.EXEC_FAILED, Kind.INIT_FAILED}) or (
            self.watch.nsjail_status is not None
        )

    async def until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Waits for `condition` or until `deadline` on time.monotonic()."""
        return await self.watch.until(condition, deadline)

    def guard(self, callback: Callable[[], None]) -> None:
        """Calls the caller's function; what it raises ends the jail and is kept."""
        try:
            callback()
        except Exception as error:
            self._fail(error)

    def kill(self) -> None:
        """Ends everything in the jail. Does not wait.

        Through init first: its namespace dies with it as one, stopped processes too, and nsjail
        lives to reap it. Before there is a handle of init no code of the guest has run.
        """
        if self.watch.nsjail_status is None and not self.watch.kill_init():
            self._kill_wider()
        self.watch.changed()

    def _kill_wider(self) -> None:
        self._spawned.cgroup.kill()
        self._spawned.kill()

    async def finish(self) -> None:
        """Ends what still runs, takes the rest of the output, counts, proves, lets go."""
        try:
            await self._until_dead()
            if self._on_dead is not None:
                self.guard(self._on_dead)
            await self._drain()
            await self._count_and_remove()
        finally:
            for task in self._tasks:
                task.cancel()
            self.watch.close()
            self._spawned.close()

    def look_again(self) -> None:
        """After `finish`: proves what it could not, if it is so by now. Short file operations."""
        if self.proven_empty:
            return
        self.watch.reap_late()
        self.cgroup.kill()
        # Of a group that can be removed the kernel itself says that nothing is in it.
        empty = self.cgroup.is_empty() and self.cgroup.remove_by(time.monotonic())
        self.proven_empty = empty and self._is_reaped()

    async def _until_dead(self) -> None:
        """Until nsjail is reaped. After the command's own end nsjail ends by itself."""
        self.over_at_ns = time.monotonic_ns()
        if not self.command_is_over:
            self.kill()
        if await self.until(self._is_reaped, time.monotonic() + KILL_GRACE_S):
            return
        self.watch.kill_init()
        self._kill_wider()
        await self.until(self._is_reaped, time.monotonic() + KILL_TIMEOUT_S)

    def _is_reaped(self) -> bool:
        return self.watch.nsjail_status is not None

    async def _drain(self) -> None:
        """The pipes end when the last process is dead; only a slow sink keeps us from seeing it."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=DRAIN_TIMEOUT_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for pump in (self.stdout, self.stderr, self.log):
            pump.take_rest()

    async def _count_and_remove(self) -> None:
        empty = self.cgroup.is_empty() or await asyncio.to_thread(self.cgroup.wait_empty)
        self.counters = self.cgroup.counters()
        removed = await asyncio.to_thread(self.cgroup.remove)
        self.proven_empty = empty and removed and self._is_reaped()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._pump_done)
        self._tasks.append(task)

    def _pump_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self._on_end(Ending.CANCELLED)


async def _feed_and_close(descriptor: Descriptor, data: bytes) -> None:
    try:
        await feed(descriptor.number, data)
    finally:
        descriptor.close()
