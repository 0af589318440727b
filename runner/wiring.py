"""Which part is given what: the daemon's parts, made once and put together."""

from __future__ import annotations

import asyncio
import os

from image import hooks, runtimes
from jail.host import JailHost
from jail.profile import Limits
from runner.context import Runner
from runner.execution.boot import Boots, Provisioner
from runner.execution.delivery import Outbox, inline_caps
from runner.execution.executions import Executions
from runner.execution.executor import Executor
from runner.execution.intake import Intake
from runner.execution.profile import Identity
from runner.fileserver.client import FileServer
from runner.health import Readiness
from runner.inputs.cache import InputCache
from runner.inputs.resolve import Resolver
from runner.longwork import Lanes
from runner.looplag import LoopLag
from runner.metrics import Metrics
from runner.session.adoption import adopt
from runner.session.checkpointing import Checkpointing
from runner.settings import Settings
from runner.terminal.terminals import Terminals
from runner.vm.gate import Gate
from runner.vm.machine import Machine
from runner.workspace.dataroot import DataRoot
from runner.workspace.outputs import Caps


async def wire(settings: Settings, data: DataRoot, host: JailHost) -> Runner:
    """Adopts what is on the disk, finds what is on the machine, and makes the rest of it."""
    session = await asyncio.to_thread(adopt, data, lock_wait=settings.lock_wait)
    found = await asyncio.to_thread(runtimes.load, settings.runtimes)
    metrics = Metrics()
    gate = Gate()
    identity = Identity(settings.session_uid, settings.session_gid, settings.network)
    inputs = await asyncio.to_thread(InputCache, data.inputs, max_bytes=settings.input_cache_bytes)
    file_server = make_file_server(settings)
    lanes = Lanes()
    resolver = Resolver(
        inputs,
        data.staging,
        file_server,
        file_max_bytes=settings.file_max_bytes,
        lane=lanes.inputs,
    )
    executor = Executor(
        host=host,
        data=data,
        identity=identity,
        settings=settings,
        metrics=metrics,
        intake=Intake(resolver, lanes),
        outbox=Outbox(file_server, caps=output_caps(settings), lanes=lanes),
    )
    boots = Boots(
        Provisioner(
            host=host,
            data=data,
            hooks=await asyncio.to_thread(hooks.find, settings.boot_hooks),
            identity=identity,
            limits=boot_limits(settings),
        ),
        ledger=session.ledger,
        cache=executor.cache,
    )
    readiness = Readiness(
        host=host,
        data=data,
        session=session,
        settings=settings,
        runtimes=found,
    )
    executions = Executions(
        executor=executor,
        session=session,
        gate=gate,
        provision=boots,
        results_max_bytes=settings.results_max_bytes,
    )
    return Runner(
        settings=settings,
        runtimes=found,
        data=data,
        session=session,
        executor=executor,
        executions=executions,
        checkpointing=Checkpointing(
            data=data,
            session=session,
            settings=settings,
            cache=executor.cache,
            provision=boots,
        ),
        terminals=Terminals(
            host=host,
            data=data,
            session=session,
            identity=identity,
            settings=settings,
            provision=boots,
            cache=executor.cache,
        ),
        boots=boots,
        inputs=inputs,
        readiness=readiness,
        metrics=metrics,
        loop_lag=LoopLag(metrics.loop_lag),
        file_server=file_server,
        lanes=lanes,
        gate=gate,
        machine=Machine(
            host=host,
            data=data,
            session=session,
            gate=gate,
            executions=executions,
            inputs=inputs,
            readiness=readiness,
        ),
    )


def make_file_server(settings: Settings) -> FileServer | None:
    """The file server's client, where there is one."""
    if settings.file_server_url is None:
        return None
    return FileServer(settings.file_server_url, timeout=settings.file_server_timeout)


def output_caps(settings: Settings) -> Caps:
    """Of one collection, by where its outputs go."""
    if settings.file_server_url is not None:
        return Caps()
    return inline_caps(
        inline_bytes=settings.inline_max_bytes, input_bytes=settings.input_cache_bytes
    )


def boot_limits(settings: Settings) -> Limits:
    """For all boot hooks together; memory and processes as any execution has them."""
    wall_ms = round(settings.boot_timeout * 1000)
    return Limits(
        wall_ms=wall_ms,
        cpu_ms=wall_ms * (os.cpu_count() or 1),
        memory_bytes=settings.memory_limit,
        pids=settings.pids_limit,
        output_bytes=settings.output_limit,
    )
