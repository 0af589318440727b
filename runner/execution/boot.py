"""Provisioning a fresh incarnation: the workspace, then the image's boot hooks, in the jail.

Idempotent, and run again after a failure, a wipe or a restore. The last boot's report is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace

import msgspec

from image.hooks import Hooks
from jail.host import JailHost
from jail.process import Jail
from jail.profile import Bind, Limits, Profile
from runner import wire
from runner.errors import BootFailed
from runner.execution import result as results
from runner.execution.outcomes import StageFacts, classify
from runner.execution.profile import BASE_ENV, WORKSPACE, Identity
from runner.execution.result import StageResult
from runner.execution.transcript import Transcript
from runner.finish import finish
from runner.workspace.dataroot import DataRoot

log = logging.getLogger(__name__)

#: Where a hook sees its directory.
HOOKS = "/mnt/boot.d"
#: Of each hook's output; it is for people.
OUTPUT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Provisioner:
    """A `session.Provision`: makes the workspace and runs the hooks, within one time limit."""

    host: JailHost
    data: DataRoot
    hooks: Hooks
    identity: Identity
    #: For one hook; `wall_ms` is for all of them together.
    limits: Limits

    async def run(self) -> wire.BootReport:
        """What every hook did. The report of a boot that failed ends with the hook that did."""
        await finish(asyncio.to_thread(self.data.make_workspace))
        deadline = time.monotonic() + self.limits.wall_ms / 1000
        done: list[wire.HookReport] = []
        for hook in self.hooks.hooks:
            left_ms = max(1, round((deadline - time.monotonic()) * 1000))
            ran = await self._run(hook.name, left_ms)
            done.append(wire.HookReport(name=hook.name, run=results.stage(ran)))
            if not ran.succeeded:
                log.error("a boot hook failed", extra={"hook": hook.name, **ran.verdict.evidence})
                return wire.BootReport(ok=False, hooks=done)
        return wire.BootReport(ok=True, hooks=done)

    async def _run(self, name: str, left_ms: int) -> StageResult:
        profile = Profile(
            argv=(f"{HOOKS}/{name}",),
            cwd=WORKSPACE,
            env=BASE_ENV,
            uid=self.identity.uid,
            gid=self.identity.gid,
            limits=replace(self.limits, wall_ms=left_ms, output_bytes=OUTPUT_BYTES),
            binds=(
                Bind(self.data.workspace_source(), WORKSPACE, writable=True),
                Bind(self.hooks.directory, HOOKS),
            ),
            network=self.identity.network,
        )
        capture = Transcript().stage("run")
        facts = await Jail(self.host, profile, sink=capture).run()
        verdict = classify(
            StageFacts(workspace_present=True, jail=facts, cpu_limit_ms=self.limits.cpu_ms)
        )
        return StageResult(facts, verdict, profile.limits, capture.complete(facts))


class Boots:
    """Boots, and remembers what the last one did."""

    def __init__(self, provisioner: Provisioner) -> None:
        self._provisioner = provisioner
        self.last: wire.BootReport | None = None

    async def __call__(self) -> None:
        """The session's `Provision`. Raises `BootFailed`, naming the hook."""
        self.last = await self._provisioner.run()
        if not self.last.ok:
            failed = self.last.hooks[-1]
            raise BootFailed(
                f"the hook {failed.name} did not end well",
                reason=failed.run.outcome.kind,
                hook=failed.name,
                outcome=msgspec.to_builtins(failed.run.outcome),
            )
