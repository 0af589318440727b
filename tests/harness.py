"""The real daemon, as its users meet it: a process of its own, spoken to over HTTP.

Used by the end-to-end tests, the fault tests, the benchmarks and the demo alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.client import START_TIMEOUT, Client, Reply

__all__ = ["Client", "Daemon", "Reply", "daemons"]

STOP_TIMEOUT = 30.0
REPOSITORY = Path(__file__).resolve().parent.parent


class Daemon(Client):
    """A runner on a free loopback port with a data root of its own."""

    def __init__(
        self,
        data_root: Path,
        environ: Mapping[str, str] | None = None,
        *,
        wrapper: Sequence[str] = (),
    ) -> None:
        """`wrapper`: a command that takes something away from the daemon and execs it."""
        super().__init__()
        self.data_root = data_root
        self.environ = dict(environ or {})
        self._wrapper = wrapper
        self.log: list[dict[str, Any]] = []
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._address: asyncio.Future[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, *, ready: bool = True) -> Daemon:
        """Starts it; with `ready`, returns when /health says 200."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNNER_")}
        own = {"RUNNER_DATA_ROOT": str(self.data_root), "RUNNER_PORT": "0"}
        # No test speaks TLS; aiohttp would read the machine's authorities twice at each start.
        own["SSL_CERT_FILE"] = os.devnull
        self._address = asyncio.get_running_loop().create_future()
        self._process = await asyncio.create_subprocess_exec(
            *self._wrapper,
            sys.executable,
            "-m",
            "runner",
            "serve",
            cwd=REPOSITORY,
            env=inherited | own | {"RUNNER_LOG_FORMAT": "json"} | self.environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        self._reader = asyncio.create_task(self._read_log())
        try:
            url = await asyncio.wait_for(self._address, START_TIMEOUT)
            self.open(url)
            if ready:
                await self.wait_ready()
        except BaseException:
            # Nobody has it yet who could end it.
            await self.kill()
            raise
        return self

    async def _read_log(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        assert self._address is not None
        lines = []
        async for line in self._process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            lines.append(text)
            with contextlib.suppress(ValueError):
                event = json.loads(text)
                self.log.append(event)
                if event.get("event") == "serving" and not self._address.done():
                    self._address.set_result(event["address"])
        if not self._address.done():
            self._address.set_exception(RuntimeError("it did not start:\n" + "\n".join(lines)))

    async def stop(self) -> int:
        """SIGTERM; the exit status as a shell's caller sees it (negative for a signal)."""
        return await self._end(signal.SIGTERM)

    async def kill(self) -> int:
        """SIGKILL: what a vanished VM looks like from the disk."""
        return await self._end(signal.SIGKILL)

    async def ended(self) -> int:
        """Waits for the end that something else has brought about."""
        return await self._end(0)

    async def _end(self, number: int) -> int:
        await self.close()
        assert self._process is not None
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
        status = await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT)
        if self._reader is not None:
            await self._reader
            self._reader = None
        return status

    async def __aenter__(self) -> Daemon:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


@contextlib.asynccontextmanager
async def daemons(root: Path, *names: str, **environ: str) -> AsyncIterator[list[Daemon]]:
    """Several runners at once, each with its own data root below `root`."""
    started: list[Daemon] = []
    try:
        for name in names:
            daemon = Daemon(root / name, environ)
            started.append(daemon)
            await daemon.start()
        yield started
    finally:
        for daemon in started:
            await daemon.stop()
