"""Provisioning a fresh incarnation: the workspace, then the image's boot hooks, in the jail.

Idempotent, and run again after a failure, a wipe or a restore. The last boot's report is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from image.hooks import Hooks
from jail.host import JailHost
from jail.process import Jail
from jail.profile import Bind, Limits, Profile
from runner import wire
from runner.errors import BootFailed
from runner.execution import result as results
from runner.execution import setup
from runner.execution.evidence import StageFacts
from runner.execution.outcomes import classify
from runner.execution.profile import BASE_ENV, WORKSPACE, Identity
from runner.execution.result import StageResult
from runner.execution.transcript import Transcript
from runner.finish import finish
from runner.session.ledger import Ledger
from runner.workspace.dataroot import DataRoot
from runner.workspace.fingerprint import HashCache

log = logging.getLogger(__name__)

#: Where a hook sees its directory.
HOOKS = "/mnt/boot.d"
#: Of each hook's output; it is for people.
OUTPUT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Provisioner:
    """Runs the hooks, within one time limit for all of them."""

    host: JailHost
    data: DataRoot
    hooks: Hooks
    identity: Identity
    #: For one hook; `wall_ms` is for all of them together.
    limits: Limits

    async def run(self) -> wire.BootReport:
        """What every hook did. The report of a boot that failed ends with the hook that did."""
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
        verdict = classify(StageFacts(workspace_present=True, jail=facts, limits=profile.limits))
        return StageResult(facts, verdict, profile.limits, capture.complete(facts))


class BootNote(msgspec.Struct, frozen=True):
    """The last boot's report, and whose it is."""

    incarnation: str
    report: wire.BootReport


class Boots:
    """Boots, and remembers what the last one did: in the state directory, for the next daemon."""

    def __init__(self, provisioner: Provisioner, *, ledger: Ledger, cache: HashCache) -> None:
        """`cache` is the session's. Reads a small file."""
        self._provisioner = provisioner
        self._ledger = ledger
        self._cache = cache
        self._note = _decoded(ledger.kept_boot())

    @property
    def last(self) -> wire.BootReport | None:
        """What the last boot of this incarnation did, if there was one."""
        record = self._ledger.record
        if self._note is None or record is None or self._note.incarnation != record.incarnation:
            return None
        return self._note.report

    async def __call__(self) -> None:
        """The session's `Provision`. Raises `BootFailed`, naming the hook."""
        report = await self._run()
        self._note = BootNote(self._ledger.bound.incarnation, report)
        await asyncio.to_thread(self._ledger.keep_boot, msgspec.json.encode(self._note))
        if not report.ok:
            failed = report.hooks[-1]
            raise BootFailed(
                f"the hook {failed.name} did not end well",
                reason=failed.run.outcome.kind,
                hook=failed.name,
                outcome=msgspec.to_builtins(failed.run.outcome),
            )

    async def _run(self) -> wire.BootReport:
        """All hooks. What they made is surfaced, however far they came."""
        await finish(asyncio.to_thread(self._provisioner.data.make_workspace))
        if not self._provisioner.hooks.hooks:
            return wire.BootReport(ok=True, hooks=[])
        epoch = self._ledger.epoch
        before = await finish(asyncio.to_thread(self._owed))
        try:
            return await self._provisioner.run()
        finally:
            await finish(asyncio.to_thread(self._surface, before, epoch))

    def _owed(self) -> Mapping[str, str]:
        """What is there before the hooks run, is not theirs, and has not been delivered.

        In a tree that no restore brought, it is theirs: of a boot that was cut off.
        """
        return self._undelivered() if self._ledger.bound.restored else setup.NOTHING

    def _undelivered(self) -> Mapping[str, str]:
        return setup.undelivered(self._provisioner.data, self._ledger.bound, self._cache)

    def _surface(self, before: Mapping[str, str], epoch: int) -> None:
        made = setup.made(before, self._undelivered())
        self._ledger.note_surfaced(made, epoch=epoch)


def _decoded(kept: bytes | None) -> BootNote | None:
    try:
        return None if kept is None else msgspec.json.decode(kept, type=BootNote)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        log.warning("what was kept of the last boot is not readable")
        return None
