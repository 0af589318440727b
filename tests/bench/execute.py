"""Execute of `print(1)` through HTTP, against the same nsjail command run bare."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from pathlib import Path

from jail.config import render
from jail.host import JailHost
from jail.profile import Bind, Limits, Network, Profile
from runner.execution.profile import BASE_ENV, WORKSPACE
from tests.bench.measuring import Row, in_turns
from tests.harness import Daemon, daemons

ROUNDS = 41
UID = 200000
PROGRAM = "print(1)"


async def rows(root: Path) -> list[Row]:
    """One row each for an execution with and without a session."""
    async with daemons(root, "execute") as (daemon,):
        floor = Bare(root / "bare")
        try:
            found = []
            for what, session in (("execute, stateless", None), ("execute, session", "bench")):
                times = await in_turns(floor.run, lambda s=session: _ours(daemon, s), rounds=ROUNDS)
                found.append(Row(f"`print(1)`, {what}", "bare nsjail", *times))
        finally:
            floor.close()
    return found


async def _ours(daemon: Daemon, session: str | None) -> float:
    began = time.perf_counter()
    reply = await daemon.execute(PROGRAM, session=session, name="main.py")
    spent = time.perf_counter() - began
    assert reply.json["run"]["stdout"] == "1\n"
    return spent


class Bare:
    """nsjail with the very configuration that the runner gives it, less the runner: no cgroup, no
    launcher, no init, no HTTP."""

    def __init__(self, directory: Path) -> None:
        workspace = directory / "workspace"
        workspace.mkdir(parents=True)
        workspace.chmod(0o755)
        (workspace / "main.py").write_text(PROGRAM, encoding="ascii")
        self._host = JailHost.open(
            nsjail=None, runtime_dir=str(directory), owner="bench-bare", uid=UID, gid=UID
        )
        profile = Profile(
            argv=("/usr/bin/python3", f"{WORKSPACE}/main.py"),
            cwd=WORKSPACE,
            env=BASE_ENV,
            uid=UID,
            gid=UID,
            limits=Limits(
                wall_ms=30_000,
                cpu_ms=60_000,
                memory_bytes=512 << 20,
                pids=64,
                output_bytes=1 << 20,
            ),
            binds=(Bind(str(workspace), WORKSPACE, writable=True),),
            network=Network.NONE,
        )
        text = render(profile, self._host.fixed, report_fd=0).decode("ascii")
        command = f'exec_bin {{ path: "{profile.argv[0]}" arg: "{profile.argv[1]}" }}'
        text, replaced = re.subn(r"exec_bin \{.*\}", lambda _: command, text)
        assert replaced == 1
        with tempfile.NamedTemporaryFile("w", dir=directory, delete=False) as file:
            file.write(text)
            self._config = file.name

    def close(self) -> None:
        self._host.close()

    async def run(self) -> float:
        assert self._host.nsjail is not None
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            self._host.nsjail,
            "-C",
            self._config,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        spent = time.perf_counter() - began
        assert stdout == b"1\n", stderr
        return spent
