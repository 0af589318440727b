"""What a handler can reach: one frozen bundle, made by `server` and carried by the application."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from image.runtimes import Runtime
from runner.execution.boot import Boots
from runner.execution.executions import Executions
from runner.execution.executor import Executor
from runner.fileserver.client import FileServer
from runner.health import Readiness
from runner.inputs.cache import InputCache
from runner.longwork import Lanes
from runner.looplag import LoopLag
from runner.metrics import Metrics
from runner.session.checkpointing import Checkpointing
from runner.session.session import Provision, Session
from runner.settings import Settings
from runner.terminal.terminals import Terminals
from runner.vm.gate import Gate
from runner.vm.machine import Machine
from runner.workspace.dataroot import DataRoot


@dataclass(frozen=True, slots=True)
class Runner:
    """The daemon's parts, wired together."""

    settings: Settings
    runtimes: tuple[Runtime, ...]
    data: DataRoot
    session: Session
    executor: Executor
    executions: Executions
    checkpointing: Checkpointing
    readiness: Readiness
    metrics: Metrics
    loop_lag: LoopLag
    gate: Gate
    machine: Machine
    boots: Boots
    inputs: InputCache
    terminals: Terminals
    file_server: FileServer | None
    lanes: Lanes

    @property
    def provision(self) -> Provision:
        """What a fresh session is provisioned with."""
        return self.boots


RUNNER: web.AppKey[Runner] = web.AppKey("runner", Runner)
