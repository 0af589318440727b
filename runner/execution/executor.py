"""One execution from plan to result: prime, compile, run, collect outputs."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import msgspec

from jail.facts import Ending
from jail.host import JailHost
from jail.measure import not_started
from jail.process import Jail
from jail.profile import Profile
from runner import wire
from runner.errors import Internal, JailFailed, WorkspaceDirty
from runner.execution import profile as profiles
from runner.execution import result as results
from runner.execution.delivery import NOTHING, NOTHING_WALKED, Delivery, Outbox
from runner.execution.evidence import StageFacts
from runner.execution.intake import Intake
from runner.execution.outcomes import Verdict, classify
from runner.execution.profile import Identity, Place
from runner.execution.request import Plan
from runner.execution.result import StageResult
from runner.execution.rules import Kind
from runner.execution.running import Execution
from runner.execution.slots import Slots
from runner.execution.space import JobSpace, SessionSpace, Space
from runner.execution.transcript import StageName
from runner.finish import finish
from runner.guard import require_descriptors
from runner.metrics import Metrics
from runner.session.hold import Hold
from runner.session.record import Dirty
from runner.settings import Settings
from runner.workspace.dataroot import DataRoot
from runner.workspace.fingerprint import HashCache

log = logging.getLogger(__name__)

#: A full ext4 has a block or so left which no write can get: room for less than this is none.
FULL_BYTES = 64 << 10
#: More than what the daemon may free between the run and the reading: a few names, its reserve's.
FULL_INODES = 64


@dataclass(frozen=True, slots=True)
class Executed:
    """The result for the client, and what it will have received once it has it: path → hash."""

    result: wire.ExecuteResult
    delivered: dict[str, str]


class Executor:
    """Runs plans. Knows nothing of requests; raises only `RunnerError`s that callers can act on."""

    def __init__(
        self,
        *,
        host: JailHost,
        data: DataRoot,
        identity: Identity,
        settings: Settings,
        metrics: Metrics,
        intake: Intake,
        outbox: Outbox,
    ) -> None:
        self._host = host
        self._data = data
        self._identity = identity
        self._settings = settings
        self._metrics = metrics
        self._intake = intake
        self._outbox = outbox
        self._slots = Slots(settings.max_jobs, wait=settings.queue_wait)
        self._under_way = 0
        self.cache = HashCache()

    async def stateless(self, plan: Plan, execution: Execution) -> Executed:
        """Runs in a workspace of its own that is gone afterwards."""
        async with self._slots.take():
            execution.began()
            making = asyncio.to_thread(self._data.make_job)
            job = await finish(making, dispose=self._data.remove_job)
            try:
                return await self._execute(plan, execution, JobSpace(self._data, job))
            finally:
                await finish(asyncio.to_thread(self._data.remove_job, job))

    async def in_session(self, plan: Plan, execution: Execution, hold: Hold) -> Executed:
        """Runs in the session's workspace. `hold` learns when it is torn and when it is whole."""
        execution.began()
        # Beside a guest no fingerprint vouches for a file's bytes (`fingerprint`, rule 2).
        cache = HashCache() if hold.is_shared else self.cache
        space = SessionSpace(self._data, hold, cache)
        executed = await self._execute(plan, execution, space)
        hold.done()
        return executed

    def cancelled(self, plan: Plan) -> Executed:
        """What is said of an execution that was ended before it had a workspace."""
        facts = not_started(self._host.enforcement, "cancelled", Ending.CANCELLED)
        verdict = classify(StageFacts(workspace_present=True, jail=facts, limits=plan.run_limits))
        self._metrics.outcome(stage="run", kind=verdict.kind.value, fault=verdict.fault)
        ran = StageResult(facts, verdict, plan.run_limits)
        return _executed(plan, None, ran, NOTHING)

    async def _execute(self, plan: Plan, execution: Execution, space: Space) -> Executed:
        require_descriptors(self._under_way)
        self._under_way += 1
        self._metrics.executing(+1)
        try:
            if not await asyncio.to_thread(space.present):
                self._conclude(self._missing(), space, stage="run")
            await asyncio.to_thread(self._require_room, space)
            if not await execution.transfer(self._intake.prime(plan, space)):
                return self.cancelled(plan)
            compiled, ran = await self._stages(plan, execution, space)
            if ran.verdict.kind is Kind.CANCELLED:
                # Who ended it does not wait for what it made; in a session that comes next time.
                delivery = NOTHING_WALKED
            else:
                delivered = await execution.transfer(self._outbox.deliver(plan, space))
                delivery = delivered or NOTHING_WALKED
        finally:
            self._metrics.executing(-1)
            self._under_way -= 1
            if not self._data.reserve.is_whole:
                await finish(asyncio.to_thread(self._data.reserve.fill))
        return _executed(plan, compiled, ran, delivery)

    async def _stages(
        self, plan: Plan, execution: Execution, space: Space
    ) -> tuple[StageResult | None, StageResult]:
        """The compile stage, if there is one, and the run stage: a failed compile is both."""
        if plan.runtime.compile is None:
            profile = profiles.run_profile(plan, Place(space.source, None), self._identity)
            return None, await self._stage("run", profile, execution, space)
        making = asyncio.to_thread(self._data.make_job)
        build = await finish(making, dispose=self._data.remove_job)
        try:
            place = Place(space.source, self._data.job_source(build))
            assert plan.compile_limits is not None
            profile = profiles.compile_profile(plan, place, self._identity)
            compiled = await self._stage("compile", profile, execution, space)
            if not compiled.facts.proven_empty:
                raise Internal("what the compiler has started may still run")
            if not compiled.succeeded:
                return compiled, compiled
            profile = profiles.run_profile(plan, place, self._identity)
            return compiled, await self._stage("run", profile, execution, space)
        finally:
            await finish(asyncio.to_thread(self._data.remove_job, build))

    async def _stage(
        self, name: StageName, profile: Profile, execution: Execution, space: Space
    ) -> StageResult:
        """One jail, and the verdict on it. Raises for what the infrastructure did."""
        limits = profile.limits
        present = await asyncio.to_thread(space.present)
        if not present:
            self._conclude(self._missing(), space, stage=name)
        capture = execution.transcript.stage(name)
        facts = await execution.run(
            Jail(
                self._host,
                profile,
                sink=capture,
                on_started=capture.started,
                on_dead=capture.release,
            )
        )
        output = capture.complete(facts)
        full = await asyncio.to_thread(self._storage_full, space)
        verdict = classify(
            StageFacts(workspace_present=True, jail=facts, limits=limits, storage_full=full)
        )
        if not facts.proven_empty:
            log.error("a jail could not be proven empty", extra={"stage": name})
            space.distrust(Dirty.NOT_EMPTY)
        self._conclude(verdict, space, stage=name, nsjail_log=facts.nsjail_log)
        return StageResult(facts, verdict, limits, output)

    def _conclude(
        self, verdict: Verdict, space: Space, *, stage: str, nsjail_log: tuple[str, ...] = ()
    ) -> None:
        """Counts it; raises the error for a verdict that is not the program's doing."""
        self._metrics.outcome(stage=stage, kind=verdict.kind.value, fault=verdict.fault)
        outcome = msgspec.to_builtins(results.outcome(verdict))
        if verdict.kind is Kind.WORKSPACE_MISSING:
            space.distrust(Dirty.MISSING)
            raise WorkspaceDirty("it is gone", reason=Dirty.MISSING, outcome=outcome)
        if verdict.fault == "infrastructure":
            log.error(
                "a jail failed",
                extra={
                    "stage": stage,
                    "nsjail": nsjail_log,
                    **verdict.evidence,
                },
            )
            if verdict.kind is Kind.JAIL_FAILED:
                raise JailFailed(outcome=outcome)
            raise Internal("what ended the program is not known", outcome=outcome)

    @staticmethod
    def _missing() -> Verdict:
        return classify(StageFacts(workspace_present=False, jail=None))

    def _require_room(self, space: Space) -> None:
        if self._data.quota is not None:
            with space.tree() as tree:
                self._data.quota.require_room(tree)

    def _storage_full(self, space: Space) -> bool:
        """Whether a program of the session's user could not write one more file now."""
        inodes = self._data.free_inodes()
        few = inodes is not None and inodes < FULL_INODES
        if few or self._data.free_bytes() < FULL_BYTES:
            return True
        if self._data.quota is None:
            return False
        try:
            with space.tree() as tree:
                return self._data.quota.is_reached(tree)
        except FileNotFoundError:
            return False  # The next stage says that it is gone.


def _executed(
    plan: Plan, compiled: StageResult | None, ran: StageResult, delivery: Delivery
) -> Executed:
    return Executed(
        wire.ExecuteResult(
            language=plan.runtime.language,
            version=plan.runtime.version,
            session_id=plan.output_session_id,
            run=results.stage(ran),
            files=delivery.files,
            skipped=delivery.skipped,
            skipped_total=delivery.skipped_total,
            compile=msgspec.UNSET if compiled is None else results.stage(compiled),
        ),
        delivery.surfaced,
    )
