"""The daemon's life, from top to bottom: prepare, serve, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from aiohttp import web

from jail.host import JailHost
from jail.profile import Network
from runner import guard
from runner.app import make_app
from runner.context import Runner
from runner.settings import Settings
from runner.wiring import wire
from runner.workspace.dataroot import DataRoot, Owner

log = logging.getLogger(__name__)

#: Threads of the loop's own, beside one for each job, for what is short. By default they are as few
#: as the CPUs and four.
SHORT_WORK_THREADS = 24

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class Stop:
    """Which signal asked for the end, once one has."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    signal_number: int | None = None


async def serve(settings: Settings) -> int | None:
    """Serves until a stop signal; returns its number, or None if it could not stop cleanly.

    What keeps it from starting is a `DataRootUnusable`, `RuntimesError`, `JailError` or OSError.
    """
    stop = Stop()
    asyncio.get_running_loop().set_default_executor(
        ThreadPoolExecutor(SHORT_WORK_THREADS + settings.max_jobs, thread_name_prefix="short")
    )
    with capture_signals(stop):
        guard.protect()
        data = DataRoot.open(
            settings.data_root,
            Owner(settings.session_uid, settings.session_gid),
            reserve_bytes=settings.disk_reserve,
            max_bytes=settings.workspace_max_bytes,
        )
        try:
            return await _serve(settings, data, stop)
        finally:
            data.close()


async def _serve(settings: Settings, data: DataRoot, stop: Stop) -> int | None:
    # First the jails of a daemon that died here: nothing may write to what is about to be adopted.
    host = await asyncio.to_thread(
        JailHost.open,
        nsjail=settings.nsjail,
        runtime_dir=data.runtime_dir(),
        owner=settings.data_root,
        uid=settings.session_uid,
        gid=settings.session_gid,
        use_cgroups=settings.cgroups == "on",
        spares=settings.spare_jails,
    )
    try:
        if settings.network is Network.EGRESS:
            await host.open_network(settings.data_root)
        runner = await wire(settings, data, host)
        web_runner = web.AppRunner(
            make_app(runner),
            handle_signals=False,
            # A client that leaves cancels its handler: its jail is ended, its restore wiped.
            handler_cancellation=True,
            access_log=None,
            # A body is taken as it comes, or refused: see `headers.refuse_encoding`.
            auto_decompress=False,
            shutdown_timeout=settings.stop_timeout,
        )
        await web_runner.setup()
        site = web.TCPSite(web_runner, settings.host, settings.port)
        await site.start()
        runner.readiness.start()
        runner.machine.watch.start()
        log.info("serving", extra={"address": _address(web_runner), "data_root": data.path})
        await stop.asked.wait()
        return await _stop(runner, host, web_runner, site, stop, settings.stop_timeout)
    finally:
        await host.aclose()


async def _stop(
    runner: Runner,
    host: JailHost,
    web_runner: web.AppRunner,
    site: web.TCPSite,
    stop: Stop,
    stop_timeout: float,
) -> int | None:
    log.info("stopping", extra={"signal": stop.signal_number})
    # No new connections.
    await site.stop()
    try:
        # All of it together has this long; each stage has bounds of its own.
        async with asyncio.timeout(2 * stop_timeout):
            # No new jails, and the end of those that run: their requests are answered `cancelled`.
            await runner.machine.watch.stop()
            await runner.readiness.stop()
            await runner.executions.aclose()
            await runner.checkpointing.aclose()
            await runner.session.aclose()
            await runner.terminals.aclose()
            await host.aclose()
            # The requests under way have `stop_timeout` to end; then they are cancelled.
            await web_runner.cleanup()
            if runner.file_server is not None:
                await runner.file_server.aclose()
    except TimeoutError:
        log.error("could not stop in time", extra={"seconds": 2 * stop_timeout})
        return None
    log.info("stopped")
    return stop.signal_number


@contextlib.contextmanager
def capture_signals(stop: Stop) -> Iterator[None]:
    """Notes the first stop signal instead of dying of it; the second one has its usual effect."""
    loop = asyncio.get_running_loop()

    def note(number: int) -> None:
        stop.signal_number = number
        for each in STOP_SIGNALS:
            loop.remove_signal_handler(each)
        stop.asked.set()

    for each in STOP_SIGNALS:
        loop.add_signal_handler(each, note, each)
    try:
        yield
    finally:
        for each in STOP_SIGNALS:
            loop.remove_signal_handler(each)


def _address(web_runner: web.AppRunner) -> str:
    host, port = web_runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(settings: Settings) -> int:
    """Serves, and dies of the signal that ended it, so that the exit status tells the truth."""
    number = asyncio.run(serve(settings))
    if number is None:
        return 1
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    # PID 1 of a container survives its own SIGTERM; a shell would say this of it.
    return 128 + number
