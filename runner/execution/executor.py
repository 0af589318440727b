"""One execution from plan to result: prime, compile, run, collect outputs."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import msgspec

from jail.facts import Facts
from jail.host import JailHost
from jail.process import Jail
from jail.profile import Profile
from runner import wire
from runner.errors import InputUnavailable, Internal, JailFailed, WorkspaceDirty
from runner.execution import profile as profiles
from runner.execution import result as results
from runner.execution.outcomes import Kind, StageFacts, Verdict, classify
from runner.execution.profile import Identity, Place
from runner.execution.request import Plan, new_id
from runner.execution.result import StageResult
from runner.execution.slots import Slots
from runner.execution.space import JobSpace, SessionSpace, Space
from runner.finish import finish
from runner.metrics import Metrics
from runner.session.session import MISSING, Hold
from runner.settings import Settings
from runner.workspace.dataroot import DataRoot
from runner.workspace.fingerprint import HashCache
from runner.workspace.priming import Inline, Input

log = logging.getLogger(__name__)

#: `dirty` reason: a jail of this workspace may still be running.
NOT_EMPTY = "jail_not_empty"


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
    ) -> None:
        self._host = host
        self._data = data
        self._identity = identity
        self._settings = settings
        self._metrics = metrics
        self._slots = Slots(settings.max_jobs, wait=settings.queue_wait)
        self.cache = HashCache()

    async def stateless(self, plan: Plan) -> Executed:
        """Runs in a workspace of its own that is gone afterwards."""
        async with self._slots.take():
            job: str = await finish(asyncio.to_thread(self._data.make_job))
            try:
                return await self._execute(plan, JobSpace(self._data, job))
            finally:
                await finish(asyncio.to_thread(self._data.remove_job, job))

    async def in_session(self, plan: Plan, hold: Hold) -> Executed:
        """Runs in the session's workspace. `hold` learns when it is torn and when it is whole."""
        space = SessionSpace(self._data, hold, self.cache)
        executed = await self._execute(plan, space)
        hold.done()
        return executed

    async def _execute(self, plan: Plan, space: Space) -> Executed:
        if plan.referenced:
            missing = plan.referenced[0]
            raise InputUnavailable(f"{str(missing.path)!a} was never delivered", field="files")
        if not await asyncio.to_thread(space.present):
            self._conclude(self._missing(), space, stage="run")
        self._metrics.executing(+1)
        try:
            inputs = tuple(Input(file.path, Inline(file.content)) for file in plan.inline)
            await finish(asyncio.to_thread(space.prime, inputs))
            compiled, ran = await self._stages(plan, space)
            outputs = await finish(
                asyncio.to_thread(space.collect, self._settings.inline_max_bytes)
            )
        finally:
            self._metrics.executing(-1)
        files = [
            wire.ResultFile(
                id=new_id(),
                name=str(each.output.path),
                storage_session_id=plan.output_session_id,
                size=each.output.size,
                mode=each.output.mode,
                sha256=each.output.sha256,
                content=each.content,
                encoding=each.encoding,
            )
            for each in outputs.inlined
        ]
        return Executed(
            wire.ExecuteResult(
                language=plan.runtime.language,
                version=plan.runtime.version,
                session_id=plan.output_session_id,
                run=results.stage(ran),
                files=files,
                skipped=outputs.skipped,
                skipped_total=outputs.skipped_total,
                compile=msgspec.UNSET if compiled is None else results.stage(compiled),
            ),
            {file.name: file.sha256 for file in files},
        )

    async def _stages(self, plan: Plan, space: Space) -> tuple[StageResult | None, StageResult]:
        """The compile stage, if there is one, and the run stage: a failed compile is both."""
        if plan.runtime.compile is None:
            return None, await self._run(plan, space, Place(space.source, None))
        build: str = await finish(asyncio.to_thread(self._data.make_job))
        try:
            place = Place(space.source, self._data.job_source(build))
            assert plan.compile_limits is not None
            compiled = await self._stage(
                "compile",
                profiles.compile_profile(plan, place, self._identity),
                space,
            )
            if not compiled.succeeded:
                return compiled, compiled
            return compiled, await self._run(plan, space, place)
        finally:
            await finish(asyncio.to_thread(self._data.remove_job, build))

    async def _run(self, plan: Plan, space: Space, place: Place) -> StageResult:
        return await self._stage("run", profiles.run_profile(plan, place, self._identity), space)

    async def _stage(self, name: str, profile: Profile, space: Space) -> StageResult:
        """One jail, and the verdict on it. Raises for what the infrastructure did."""
        cpu_limit_ms = profile.limits.cpu_ms
        present = await asyncio.to_thread(space.present)
        if not present:
            return self._conclude(self._missing(), space, stage=name)
        facts = await Jail(self._host, profile).run()
        full = await asyncio.to_thread(self._storage_full)
        verdict = classify(
            StageFacts(
                workspace_present=True, jail=facts, cpu_limit_ms=cpu_limit_ms, storage_full=full
            )
        )
        if not facts.proven_empty:
            log.error("a jail could not be proven empty", extra={"stage": name})
            space.distrust(NOT_EMPTY)
        return self._conclude(verdict, space, stage=name, facts=facts)

    def _conclude(
        self, verdict: Verdict, space: Space, *, stage: str, facts: Facts | None = None
    ) -> StageResult:
        """The result of a stage, or the error for a verdict that is not the program's doing."""
        self._metrics.outcome(stage=stage, kind=verdict.kind.value, fault=verdict.fault)
        outcome = msgspec.to_builtins(results.outcome(verdict))
        if verdict.kind is Kind.WORKSPACE_MISSING:
            space.distrust(MISSING)
            raise WorkspaceDirty("it is gone", reason=MISSING, outcome=outcome)
        if verdict.fault == "infrastructure":
            log.error(
                "a jail failed",
                extra={
                    "stage": stage,
                    "nsjail": facts.nsjail_log if facts else None,
                    **verdict.evidence,
                },
            )
            if verdict.kind is Kind.JAIL_FAILED:
                raise JailFailed(outcome=outcome)
            raise Internal("what ended the program is not known", outcome=outcome)
        assert facts is not None
        return StageResult(facts, verdict)

    @staticmethod
    def _missing() -> Verdict:
        return classify(StageFacts(workspace_present=False, jail=None, cpu_limit_ms=0))

    def _storage_full(self) -> bool:
        """Whether a program of the session's user could not write one more file now."""
        inodes = self._data.free_inodes()
        return self._data.free_bytes() == 0 or inodes == 0
