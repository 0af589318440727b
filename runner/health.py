"""Readiness: a real jail, run beside the requests, says whether this VM can do its job.

The probe runs at start and then at intervals; `/health` only ever reads its last result, so it
answers at once whatever a jail is doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable

from msgspec import Struct

from jail.facts import Enforcement, Facts
from jail.host import JailHost
from jail.process import Jail
from jail.profile import Bind, Limits, Network, Profile
from runner.execution.profile import BASE_ENV, WORKSPACE
from runner.finish import finish, finish_in_thread
from runner.session.session import Session
from runner.settings import Settings
from runner.workspace.dataroot import DataRoot

log = logging.getLogger(__name__)

#: Seconds between probes while they pass, and while they fail.
INTERVAL, RETRY_INTERVAL = 30.0, 2.0
#: A result older than this many seconds says nothing any more.
STALE_AFTER = 4 * INTERVAL
#: Generous: under a fork bomb a probe is slow, and slow is not broken.
PROBE_LIMITS = Limits(
    wall_ms=15_000, cpu_ms=15_000, memory_bytes=64 << 20, pids=16, output_bytes=4096
)
_WROTE = b"probe"
#: The probe's own exit codes for a jail that lets through what it must refuse.
_COULD_WRITE_SYSTEM, _COULD_SEE_STATE = 10, 11
_SCRIPT = f"""
if (: > /usr/probe) 2>/dev/null; then exit {_COULD_WRITE_SYSTEM}; fi
if ls -d "$1" >/dev/null 2>&1; then exit {_COULD_SEE_STATE}; fi
printf probe > {WORKSPACE}/probe
"""


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was really tried, and what came of it."""

    name: str
    ok: bool
    detail: str


class SessionReport(Struct, frozen=True, kw_only=True):
    """Where the session is."""

    state: str
    incarnation: str | None
    dirty: str | None


class Report(Struct, frozen=True, kw_only=True):
    """Body of GET /health. `limits` says of each limit whether the kernel holds it."""

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
        runtimes: tuple[str, ...],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._data = data
        self._session = session
        self._settings = settings
        self._runtimes = runtimes
        self._clock = clock
        self._checks: tuple[Check, ...] = ()
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
            checks.append(Check(name="probe", ok=False, detail="no probe has ended yet"))
        elif age > STALE_AFTER:
            checks.append(Check(name="probe", ok=False, detail="the last probe is too long ago"))
        record = self._session.record
        enforcement = self._host.enforcement.value
        return Report(
            status="healthy" if all(check.ok for check in checks) else "unhealthy",
            level="ready",
            checks=checks,
            checked_seconds_ago=None if age is None else round(age, 1),
            limits=dict.fromkeys(("memory", "pids", "cpu"), enforcement)
            | {"wall_clock": Enforcement.ENFORCED.value},
            runtimes=list(self._runtimes),
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
                self._checks = await self._probe()
            except OSError:
                log.exception("the readiness probe could not be run")
                self._checks = (Check(name="probe", ok=False, detail="it could not be run"),)
            if not self._asked.is_set():
                self._checked_at = self._clock()
                self._ended.set()
            failed = [check.name for check in self._checks if not check.ok]
            if failed:
                log.warning("not ready", extra={"failed": failed})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_INTERVAL if failed else INTERVAL):
                    await self._asked.wait()

    async def _probe(self) -> tuple[Check, ...]:
        job: str = await finish_in_thread(self._data.make_job)
        try:
            facts = await Jail(self._host, self._profile(job)).run()
            written = await asyncio.to_thread(self._look, job)
        finally:
            await finish(asyncio.to_thread(self._data.remove_job, job))
        verdict = _judge(
            facts, written, uid=self._settings.session_uid, promised=self._host.enforcement
        )
        return (*verdict, self._runtimes_check())

    def _profile(self, job: str) -> Profile:
        return Profile(
            argv=("/bin/sh", "-c", _SCRIPT, "probe", self._data.path),
            cwd=WORKSPACE,
            env=BASE_ENV,
            uid=self._settings.session_uid,
            gid=self._settings.session_gid,
            limits=PROBE_LIMITS,
            binds=(Bind(self._data.job_source(job), WORKSPACE, writable=True),),
            network=Network.NONE,
        )

    def _look(self, job: str) -> tuple[int, bytes] | None:
        """Owner and content of what the probe wrote, as the host sees it."""
        with self._data.job(job) as tree:
            try:
                fd = tree.open_file((b"probe",))
            except OSError:
                return None
            with os.fdopen(fd, "rb") as file:
                return os.fstat(file.fileno()).st_uid, file.read(len(_WROTE) + 1)

    def _runtimes_check(self) -> Check:
        names = ", ".join(self._runtimes)
        return Check(name="runtimes", ok=bool(self._runtimes), detail=names or "none is installed")


def _judge(
    facts: Facts, written: tuple[int, bytes] | None, *, uid: int, promised: Enforcement
) -> tuple[Check, ...]:
    """What the probe's jail proves. Pure."""
    code = os.waitstatus_to_exitcode(facts.wait_status) if facts.wait_status is not None else None
    started = facts.started and code is not None
    detail = "ran and left nothing" if started else f"not started: {facts.setup_failure}"
    owner, content = written or (None, b"")
    return (
        Check(name="jail", ok=started and facts.proven_empty, detail=detail),
        Check(
            name="workspace",
            ok=owner == uid and content == _WROTE,
            detail="the session UID wrote to /mnt/data"
            if owner == uid and content == _WROTE
            else "the session UID could not write to /mnt/data",
        ),
        Check(
            name="isolation",
            ok=code == 0,
            detail={
                0: "forbidden paths were refused",
                _COULD_WRITE_SYSTEM: "the jail could write to the system",
                _COULD_SEE_STATE: "the jail could see the data root",
            }.get(code if code is not None else -1, "the probe did not get that far"),
        ),
        Check(
            name="limits",
            # Without controllers the runner still works and says `advisory`. What fails is a jail
            # that did not get the limits which this machine can hold.
            ok=facts.enforcement is promised,
            detail=f"{facts.enforcement.value}, as read back from a real jail",
        ),
    )
