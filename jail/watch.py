"""Watches one spawned nsjail: init's reports and nsjail's own end, as they come.

It only records. What follows from it is `process`'s to decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import time
from collections.abc import Callable

from jail.report import SIZE, Kind, Report, parse
from jail.spawn import Descriptor, Spawned


class Watch:
    """Registered with the running loop from `__init__` until `close`."""

    def __init__(self, spawned: Spawned) -> None:
        self.reports: dict[Kind, Report] = {}
        self.nsjail_status: int | None = None
        self.nsjail_usage: resource.struct_rusage | None = None
        #: CPU time that the cgroup had used when init came up: nsjail's own, not the command's.
        self.setup_cpu_ns = 0
        #: The master of the command's terminal, once init has handed it over; until it is taken.
        self.terminal = Descriptor(-1)
        self._init = Descriptor(-1)
        self._spawned = spawned
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(spawned.reports.fileno(), self._read_reports)
        self._loop.add_reader(spawned.pidfd.number, self._reap)

    def close(self) -> None:
        """Stops watching and lets go of init's handle, and of a terminal that nobody took."""
        self._loop.remove_reader(self._spawned.reports.fileno())
        self._loop.remove_reader(self._spawned.pidfd.number)
        self._init.close()
        self.terminal.close()

    def changed(self) -> None:
        """Wakes whoever waits in `until`."""
        self._changed.set()

    async def until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Waits for `condition` or for `deadline` on time.monotonic(); the condition's last say."""
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                # A busy loop may find both at once: what has happened comes before the clock.
                self._read_reports()
                return condition()
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
        return True

    def kill_init(self) -> bool:
        """SIGKILL to init, which ends its namespace; False while there is no handle of it."""
        if self._init.number < 0:
            return False
        # When it is gone already its namespace is as well.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init.number, signal.SIGKILL)
        return True

    def reap_late(self) -> None:
        """For an nsjail that was not dead yet in `close`."""
        if self.nsjail_status is None:
            try:
                dead, status = os.waitpid(self._spawned.pid, os.WNOHANG)
            except ChildProcessError:
                dead, status = self._spawned.pid, 0
            if dead:
                self.nsjail_status = status

    def _read_reports(self) -> None:
        while True:
            try:
                datagram, descriptors, _, _ = socket.recv_fds(self._spawned.reports, SIZE + 1, 1)
            except BlockingIOError:
                return
            report = parse(datagram)
            for number in descriptors:
                self._keep(report, number)
            if not datagram:
                # All ends are closed; a reader on a closed socket would spin.
                self._loop.remove_reader(self._spawned.reports.fileno())
                return
            if report is not None:
                self._take(report)

    def _keep(self, report: Report | None, number: int) -> None:
        kind = report.kind if report is not None else None
        # Once each: nothing but init speaks here, and what came first stands.
        if kind is Kind.UP and kind not in self.reports:
            self._init = Descriptor(number)
        elif kind is Kind.TERMINAL and kind not in self.reports:
            os.set_blocking(number, False)
            self.terminal = Descriptor(number)
        else:
            os.close(number)

    def _take(self, report: Report) -> None:
        if report.kind is Kind.UP:
            self.setup_cpu_ns = self._spawned.cgroup.cpu_ns() or 0
        self.reports.setdefault(report.kind, report)
        self._changed.set()

    def _reap(self) -> None:
        self._loop.remove_reader(self._spawned.pidfd.number)
        # The reports were sent before init and then nsjail ended.
        self._read_reports()
        try:
            _, self.nsjail_status, self.nsjail_usage = os.wait4(self._spawned.pid, 0)
        except ChildProcessError:
            # Someone else reaps our children; that it has ended we know from the pidfd.
            self.nsjail_status = 0
        self._changed.set()
