"""Suspend, resume and terminate: what the platform asks of the daemon as a whole."""

from __future__ import annotations

import asyncio
import logging

from jail.facts import Ending
from jail.host import JailHost
from runner.errors import IncarnationMismatch, Internal, RunnerError, SessionBusy
from runner.execution.executions import Executions
from runner.finish import finish
from runner.health import Readiness
from runner.inputs.cache import InputCache
from runner.session.session import Session
from runner.vm import clock, entropy
from runner.vm.gate import Gate
from runner.vm.steps import Step
from runner.vm.suspension import SuspensionWatch
from runner.workspace.dataroot import DataRoot

log = logging.getLogger(__name__)

#: Seconds for all jails to end. A SIGKILL takes as long as the kernel needs to free the memory.
END_TIMEOUT = 10.0


class Machine:
    """The VM's own lifecycle."""

    def __init__(
        self,
        *,
        host: JailHost,
        data: DataRoot,
        session: Session,
        gate: Gate,
        executions: Executions,
        inputs: InputCache,
        readiness: Readiness,
    ) -> None:
        self._host = host
        self._data = data
        self._session = session
        self._gate = gate
        self._executions = executions
        self._inputs = inputs
        self._readiness = readiness
        self.watch = SuspensionWatch(self._noticed)

    def identify(self, vm_id: str) -> None:
        """The platform's name of this VM: the first one stays, another is logged and ignored."""
        known = self._session.vm_id
        if known is None:
            self._session.vm_id = vm_id
        elif known != vm_id:
            log.warning("another VM id was ignored", extra={"vm_id": known, "ignored": vm_id})

    async def suspend(self) -> list[Step]:
        """Waits (bounded) for the operation under way and writes everything to the disk.

        A program that still runs then is suspended with the VM, and its deadline with it.
        """
        try:
            async with self._session.paused():
                return [self._quiesced(), await self._sync()]
        except SessionBusy:
            said = f"the session is {self._session.state.value}"
            return [Step(name="quiesced", done=False, detail=said), await self._sync()]

    async def resume(self, *, given_time_ns: int | None, seed: bytes) -> list[Step]:
        """Clock, entropy, and nothing that was made ahead or remembered before the suspend.

        All of it even when who asked is gone meanwhile: nobody else would notice this suspend.
        """
        self.watch.told()
        return await finish(self._resume(given_time_ns, seed))

    async def _resume(self, given_time_ns: int | None, seed: bytes) -> list[Step]:
        steps = [
            await asyncio.to_thread(clock.correct, given_time_ns),
            await asyncio.to_thread(entropy.reseed, vm_id=self._session.vm_id, given=seed),
            await self._drop_warmed(),
        ]
        self._readiness.probe_now()
        steps.append(Step(name="readiness", done=True, detail="the last probe no longer counts"))
        log.info("resumed", extra={"steps": [f"{s.name}: {s.detail}" for s in steps]})
        return steps

    async def terminate(self) -> list[Step]:
        """Ends all work, reaps every jail, then wipes. Raises `Internal` when something is left.

        All of it even when who asked is gone meanwhile.
        """
        return await finish(self._terminate())

    async def _terminate(self) -> list[Step]:
        # Nothing begins before there is an answer, so that what it says is still so.
        async with self._gate.closed():
            await self._session.terminate(end_jails=self._end_work, wipe=self._wipe)
            self._executions.forget()
            return [
                Step(name="jails", done=True, detail="none is left"),
                Step(name="workspace", done=True, detail="wiped, and every input that was pushed"),
            ]

    async def _end_work(self) -> None:
        self._session.guests.dismiss(IncarnationMismatch("the VM is being terminated"))
        await self.end_jails()
        await self._gate.emptied()

    async def end_jails(self) -> None:
        """Ends all jails and waits for their end; raises `Internal` if it takes too long."""
        jails = list(self._host.running)
        for jail in jails:
            jail.end(Ending.CANCELLED)
        try:
            async with asyncio.timeout(END_TIMEOUT):
                await asyncio.gather(*(jail.settled() for jail in jails))
        except TimeoutError:
            raise Internal("a jail could not be ended in time") from None

    def _wipe(self) -> None:
        self._data.wipe_workspace()
        self._inputs.clear()
        self._data.sweep()
        if not self._host.is_clear():
            # It was killed and does not die. What it may write from now on is not wiped.
            raise Internal("something of a jail may be left")

    def _quiesced(self) -> Step:
        """Nothing holds the session."""
        beside = len(self._gate)
        said = f"under way beside the session: {beside}" if beside else "no operation is under way"
        return Step(name="quiesced", done=not beside, detail=said)

    async def _sync(self) -> Step:
        try:
            await asyncio.to_thread(self._data.sync)
        except OSError:
            log.exception("the disk could not be synced")
            return Step(name="synced", done=False, detail="the disk refused")
        return Step(name="synced", done=True, detail="everything written is on the disk")

    async def _drop_warmed(self) -> Step:
        dropped = await self._host.drop_warmed()
        return Step(name="warmed", done=True, detail=f"{dropped} jails made ahead were dropped")

    async def _noticed(self, seconds: float) -> None:
        try:
            await self.resume(given_time_ns=None, seed=b"")
        except (OSError, RunnerError):
            log.exception("what follows a suspend failed", extra={"seconds": seconds})
