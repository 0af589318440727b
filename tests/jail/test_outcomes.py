"""How a command ends is told as it was, whatever number it chose."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from jail.facts import Enforcement, Facts
from jail.host import JailHost
from jail.process import Jail
from tests.jail.conftest import UID, ProfileMaker, Runner


@pytest.mark.parametrize("code", [0, 1, 125, 127, 137, 255])
async def test_an_exit_code_stays_what_it_is(sh: Runner, code: int) -> None:
    facts: Facts = await sh(f"exit {code}")
    assert facts.started and facts.ended_by is None and facts.setup_failure is None
    assert facts.wait_status is not None
    assert os.waitstatus_to_exitcode(facts.wait_status) == code
    assert facts.proven_empty


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "KILL", "TERM", "XFSZ", "SYS", "PIPE"])
async def test_a_death_by_its_own_signal_is_a_signal(sh: Runner, name: str) -> None:
    facts: Facts = await sh(f"kill -{name} $$; sleep 3")
    assert facts.wait_status is not None and os.WIFSIGNALED(facts.wait_status)
    assert os.WTERMSIG(facts.wait_status) == signal.Signals[f"SIG{name}"]
    assert facts.ended_by is None


async def test_a_program_that_is_not_there_is_an_exec_errno(run: Runner) -> None:
    facts: Facts = await run("no-such-program")
    assert (facts.started, facts.exec_errno, facts.setup_failure) == (False, errno.ENOENT, None)
    assert facts.wait_status is None and facts.proven_empty


async def test_a_file_that_is_not_executable_is_an_exec_errno(run: Runner, workspace: Path) -> None:
    (workspace / "data.txt").write_text("x")
    facts: Facts = await run("/mnt/data/data.txt")
    assert (facts.started, facts.exec_errno) == (False, errno.EACCES)


async def test_a_script_of_the_workspace_runs(run: Runner, workspace: Path) -> None:
    script = workspace / "hello"
    script.write_text("#!/bin/sh\necho hello from $0\n")
    script.chmod(0o755)
    facts: Facts = await run("./hello")
    assert facts.stdout.kept == b"hello from ./hello\n"


async def test_the_command_is_found_along_the_path_of_its_own_environment(
    run: Runner, workspace: Path
) -> None:
    script = workspace / "tool"
    script.write_text("#!/bin/sh\necho found\n")
    script.chmod(0o755)
    facts: Facts = await run("tool", env={"PATH": "/usr/bin:/mnt/data"})
    assert facts.stdout.kept == b"found\n"


async def test_time_and_memory_are_measured(py: Runner, host: JailHost) -> None:
    code = """
import time
block = bytearray(40 << 20)
end = time.process_time() + 0.2
while time.process_time() < end: pass
time.sleep(0.2)
"""
    facts: Facts = await py(code)
    assert 0.4e9 <= facts.wall_ns < 3e9
    # A fifth of a second it slept.
    assert 0.2e9 <= facts.cpu_ns < facts.wall_ns - 0.15e9
    assert 40 << 20 <= facts.memory_peak_bytes < 80 << 20
    assert facts.enforcement is host.enforcement is Enforcement.ENFORCED


async def test_set_up_costs_the_command_no_time(run: Runner) -> None:
    facts: Facts = await run("true")
    assert 0 < facts.wall_ns < 1e9
    # nsjail alone takes 8 ms of CPU before the command exists.
    assert facts.counters.cpu_ns is not None and facts.cpu_ns < facts.counters.cpu_ns


async def test_the_command_runs_as_the_session_and_as_nothing_else(sh: Runner) -> None:
    facts: Facts = await sh("id; grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status")
    text = facts.stdout.kept.decode()
    assert f"uid={UID}(sandbox) gid={UID}(sandbox) groups={UID}(sandbox)\n" in text
    for name in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
        assert f"Cap{name}:\t0000000000000000\n" in text
    assert "NoNewPrivs:\t1\n" in text and "Seccomp:\t2\n" in text


async def test_a_jail_is_used_once(host: JailHost, profile: ProfileMaker) -> None:
    jail = Jail(host, profile("true"))
    await jail.run()
    with pytest.raises(RuntimeError):
        await jail.run()
