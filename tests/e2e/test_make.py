"""`make run` as a newcomer uses it: what it prints, and that it ends; and what `make` lists.

The virtual environment that make would set up is stood in for by the one that runs this.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import REPOSITORY, Daemon

PATIENCE_S = 40.0
INHERITED = {k: v for k, v in os.environ.items() if not k.startswith(("RUNNER_", "MAKE"))}


def stand_in(venv: Path) -> str:
    """An environment that is set up as far as make looks."""
    (venv / "bin").mkdir(parents=True)
    for name, what in (("python", ""), ("sandbox-runner", "-m runner")):
        script = venv / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {what} "$@"\n')
        script.chmod(0o755)
    (venv / ".installed").touch()
    return f"VENV={venv}"


@contextlib.asynccontextmanager
async def made(directory: Path, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`make run` in a process group of its own, as a terminal gives it one."""
    own = {"RUNNER_DATA_ROOT": str(directory / "data"), "RUNNER_PORT": "0"}
    make = await asyncio.create_subprocess_exec(
        *("make", "run", stand_in(directory / "venv")),
        cwd=REPOSITORY,
        env=INHERITED | own | environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield make
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(make.pid, signal.SIGKILL)
        await make.wait()


async def printed(make: asyncio.subprocess.Process, until: str) -> str:
    """What it has printed, up to the line that has `until` in it."""
    assert make.stdout is not None
    lines = ""
    async with asyncio.timeout(PATIENCE_S):
        while until not in lines:
            line = await make.stdout.readline()
            assert line, lines
            lines += line.decode()
    return lines


def daemon_of(data_root: Path) -> list[str]:
    """The processes that serve from this data root."""
    wanted = f"RUNNER_DATA_ROOT={data_root}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().decode())
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_what_ends_make_ends_the_daemon(fast_dir: Path, number: signal.Signals) -> None:
    async with made(fast_dir) as make:
        await printed(make, "/console")
        assert daemon_of(fast_dir / "data")
        if number is signal.SIGINT:
            os.killpg(make.pid, number)  # Ctrl-C: all of the terminal's foreground.
        else:
            make.send_signal(number)
        _, said = await asyncio.wait_for(make.communicate(), PATIENCE_S)
        assert make.returncode != 0
        assert daemon_of(fast_dir / "data") == []
        assert b"Traceback" not in said, said


async def test_the_lines_reach_the_daemon_that_was_made(fast_dir: Path) -> None:
    async with made(fast_dir, RUNNER_HOST="::1", RUNNER_TOKEN="secret") as make:
        said = await printed(make, "/console")
        assert "secret" not in said
        lines = [line for line in said.splitlines() if line.startswith("  curl -s http://[::1]:")]
        assert len(lines) == 3
        execute = subprocess.run(
            ["sh", "-c", lines[0]],
            env={"RUNNER_TOKEN": "secret", "PATH": INHERITED["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        )
        assert '"stdout":"turn\\n\\n"' in execute.stdout


async def test_of_a_daemon_that_was_there_before_nothing_is_said(
    start: Callable[..., Any], fast_dir: Path
) -> None:
    other: Daemon = await start("other")
    port = other.url.rpartition(":")[2]
    async with made(fast_dir, RUNNER_PORT=port) as make:
        said, complaint = await asyncio.wait_for(make.communicate(), PATIENCE_S)
    assert b"curl" not in said and b"address already in use" in complaint


async def test_no_console_is_told_of_where_it_is_switched_off(fast_dir: Path) -> None:
    async with made(fast_dir, RUNNER_CONSOLE="false") as make:
        await printed(make, "/session/restore")
        make.terminate()
        rest, _ = await asyncio.wait_for(make.communicate(), PATIENCE_S)
    assert b"/console" not in rest


def test_make_lists_every_target_and_every_target_is_phony() -> None:
    made = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^make (\S+) +\S", made.stdout, re.M))
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.M))
    phony = set(" ".join(re.findall(r"^\.PHONY:(.*)$", makefile, re.M)).split())
    assert listed == targets == phony
