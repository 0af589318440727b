"""Readiness: a real jail, run beside the requests, says whether this VM can do its job.

The probe runs at start and then at intervals; `/health` only ever reads its last result, so it
answers at once whatever a jail is doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from msgspec import Struct

from image.checks import Check, failed, machine
from image.probe import Bench, isolation, runtime
from image.runtimes import Runtime
from jail.facts import Enforcement
from jail.host import JailHost
from runner.guard import give_memory_back, oom_protection
from runner.session.session import Session
from runner.settings import Settings
from runner.workspace.dataroot import DataRoot

log = logging.getLogger(__name__)

#: Seconds between probes while they pass, and while they fail.
INTERVAL, RETRY_INTERVAL = 30.0, 2.0
#: What a probe writes is less than this.
PROBE_BYTES, PROBE_INODES = 256 << 10, 8
#: A result older than this many seconds says nothing any more.
STALE_AFTER = 4 * INTERVAL


class SessionReport(Struct, frozen=True, kw_only=True):
    """Where the session is."""

    state: str
    incarnation: str | None
    dirty: str | None


class Report(Struct, frozen=True, kw_only=True):
    """Body of GET /health. `limits` says of each limit whether the kernel holds it.

    `daemon`: whether everything else dies before the daemon when the machine runs out of memory.
    """

    status: str
    level: str
    checks: list[Check]
    checked_seconds_ago: float | None
    limits: dict[str, str]
    runtimes: list[str]
    session: SessionReport

    @property
    def ready(self) -> bool:
        """Whether work may be sent here."""
        return self.status == "healthy"


class Readiness:
    """Owns the probe's task and its last result."""

    def __init__(
        self,
        *,
        host: JailHost,
        data: DataRoot,
        session: Session,
        settings: Settings,
        runtimes: tuple[Runtime, ...],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._data = data
        self._session = session
        self._runtimes = runtimes
        self._clock = clock
        self._bench = Bench(host, settings.session_uid, settings.session_gid, data.runtime_dir())
        self._ran: list[Check] = []
        self._checks: list[Check] = []
        self._checked_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._ended = asyncio.Event()

    def start(self) -> None:
        """Starts probing."""
        self._task = asyncio.create_task(self._keep_probing(), name="readiness probe")

    async def stop(self) -> None:
        """Stops probing; a probe under way is ended and reaped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def probe_now(self) -> None:
        """The last result says nothing any more: the VM was suspended, or became another."""
        self._checked_at = None
        self._ran = []
        self._ended.clear()
        self._asked.set()

    async def wait(self, timeout: float) -> Report:  # noqa: ASYNC109 - it answers, it does not fail
        """The result of a probe that has ended, or what there is after `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        return self.report()

    def report(self) -> Report:
        """The last result, at once."""
        age = None if self._checked_at is None else self._clock() - self._checked_at
        checks = list(self._checks)
        if age is None:
            checks.append(failed("probe", "none has ended yet", "wait"))
        elif age > STALE_AFTER:
            checks.append(failed("probe", "the last one is too long ago", "see the log"))
        record = self._session.record
        enforcement = self._host.enforcement.value
        quota = self._data.quota
        return Report(
            status="healthy" if all(check.ok for check in checks) else "unhealthy",
            level="ready",
            checks=checks,
            checked_seconds_ago=None if age is None else round(age, 1),
            limits=dict.fromkeys(("memory", "pids", "cpu"), enforcement)
            | {"wall_clock": Enforcement.ENFORCED.value, "daemon": oom_protection().value}
            | ({"workspace": quota.enforcement.value} if quota is not None else {}),
            runtimes=[f"{each.language} {each.version}" for each in self._runtimes],
            session=SessionReport(
                state=self._session.state.value,
                incarnation=self._session.incarnation,
                dirty=record.dirty if record else None,
            ),
        )

    async def _keep_probing(self) -> None:
        while True:
            self._asked.clear()
            try:
                await self._probe()
            except Exception:
                # Whatever it is: a daemon that probes no more is unready for ever.
                log.exception("the readiness probe could not be run")
                self._publish([failed("probe", "it could not be run", "see the log")])
            if not self._asked.is_set():
                self._ended.set()
            unwell = [check for check in self._checks if not check.ok]
            if unwell:
                why = {check.name: f"{check.detail}; {check.remedy}" for check in unwell}
                log.warning("not ready", extra={"failed": why})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_INTERVAL if unwell else INTERVAL):
                    await self._asked.wait()

    async def _probe(self) -> None:
        checks = await asyncio.to_thread(machine, self._host, self._data.path)
        await asyncio.to_thread(self._make_room)
        try:
            checks += await isolation(self._bench, self._data.path)
            if not self._runtimes:
                checks.append(failed("runtimes", "none is installed", "install one of the list"))
            self._publish(checks + self._ran)
            if len(self._ran) < len(self._runtimes):
                # Once: an interpreter that ran will run again, and a probe has to stay cheap.
                # Whoever waits for readiness does not wait for the slowest compiler.
                self._ran = [await runtime(self._bench, each) for each in self._runtimes]
                self._publish(checks + self._ran)
        finally:
            if not self._data.reserve.is_whole:
                await asyncio.to_thread(self._data.reserve.fill)
            await asyncio.to_thread(give_memory_back)

    def _make_room(self) -> None:
        """A disk that a guest has filled is the guest's affair, and no less ready is the VM."""
        inodes = self._data.free_inodes()
        if self._data.free_bytes() < PROBE_BYTES or (inodes is not None and inodes < PROBE_INODES):
            self._data.reserve.give_up()

    def _publish(self, checks: list[Check]) -> None:
        self._checks = checks
        if not self._asked.is_set():
            self._checked_at = self._clock()
