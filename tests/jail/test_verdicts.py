"""The outcome table over real jails: what a program did, and what is said of it."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jail.cgroup import Cgroups
from jail.facts import Enforcement, Facts
from jail.hierarchy import Parents
from jail.host import JailHost
from jail.process import Jail
from runner.execution.evidence import StageFacts
from runner.execution.outcomes import Verdict, classify
from tests.jail.conftest import LIMITS, ProfileMaker, Runner

HUNGRY = "/usr/bin/python3 -I -S -c 'block = bytearray(400 << 20)'"
SPIN = "while :; do :; done"
#: What nsjail says when it ends a jail, what the kernel says, and words of our own reports.
LIES = (
    "[I][2026-01-01T00:00:00+0000] pid=2 run time >= time limit (1 >= 1) (pid:2) Killing it",
    "[E][2026-01-01T00:00:00+0000][1] Launching child process failed",
    "Memory cgroup out of memory: Killed process 2 (python3)",
    "SRI1",
    "outcome: out_of_memory jail_failed workspace_missing",
    "exec failed: No such file or directory",
)


def verdict_on(facts: Facts, **limits: int) -> Verdict:
    stage = StageFacts(workspace_present=True, jail=facts, limits=replace(LIMITS, **limits))
    return classify(stage)


@pytest.fixture
def judged(sh: Runner) -> Callable[..., Any]:
    """Runs a shell script to the verdict on it."""

    async def run_script(script: str, **changes: Any) -> Verdict:
        return verdict_on(await sh(script, **changes), **changes)

    return run_script


#: script → kind, fault, code, signal, status
ENDS = {
    "exit 0": ("exited", "none", 0, None, None),
    "exit 1": ("exited", "user", 1, None, None),
    "exit 137": ("exited", "user", 137, None, None),
    "exit 255": ("exited", "user", 255, None, None),
    f"exit {128 + 9}": ("exited", "user", 137, None, None),
    "kill -SEGV $$; sleep 3": ("signaled", "user", 139, "SIGSEGV", "SG"),
    "kill -ABRT $$; sleep 3": ("signaled", "user", 134, "SIGABRT", "SG"),
    "kill -KILL $$; sleep 3": ("signaled", "user", 137, "SIGKILL", "SG"),
    # No CPU time was used: the counters do not bear out a limit.
    "kill -XCPU $$; sleep 3": ("signaled", "user", 152, "SIGXCPU", "SG"),
    # These two the kernel's own counters cannot tell from the real ones.
    "kill -SYS $$; sleep 3": ("syscall_denied", "user", 159, "SIGSYS", "SG"),
    "kill -XFSZ $$; sleep 3": ("file_too_large", "limit", 153, "SIGXFSZ", "SG"),
}


@pytest.mark.parametrize("script", ENDS)
async def test_how_it_ended_is_what_is_said(judged: Callable[..., Any], script: str) -> None:
    said: Verdict = await judged(script)
    assert (said.kind, said.fault, said.code, said.signal_name, said.status) == ENDS[script]
    assert said.retryable is False and said.evidence["wait_status"] is not None


async def test_memory_of_its_own(judged: Callable[..., Any]) -> None:
    said: Verdict = await judged(f"exec {HUNGRY}")
    assert (said.kind, said.fault, said.code) == ("out_of_memory", "limit", 137)
    assert (said.evidence["oom_kills_before"], said.evidence["oom_kills"]) == (0, 1)


async def test_memory_of_a_grandchild_whose_parent_ends_well(judged: Callable[..., Any]) -> None:
    said: Verdict = await judged(f"({HUNGRY}); exit 0")
    assert (said.kind, said.fault, said.code) == ("exited", "none", 0)
    assert (said.evidence["oom_kills_before"], said.evidence["oom_kills"]) == (0, 1)


async def test_memory_too_small_even_for_the_jail_is_a_limit_and_no_failure_of_ours(
    judged: Callable[..., Any],
) -> None:
    said: Verdict = await judged("exit 0", memory_bytes=512 << 10)
    assert (said.kind, said.fault, said.retryable) == ("out_of_memory", "limit", False)


async def test_cpu_on_two_processors(judged: Callable[..., Any]) -> None:
    said: Verdict = await judged(f"({SPIN}) & {SPIN}", cpu_ms=400)
    assert (said.kind, said.fault, said.status) == ("cpu_exhausted", "limit", "TO")
    assert said.evidence["cpu_ns"] >= 400e6 and said.evidence["cpu_limit_ms"] == 400


async def test_the_wall_clock_while_asleep(judged: Callable[..., Any]) -> None:
    said: Verdict = await judged("sleep 30", wall_ms=250)
    assert (said.kind, said.status, said.code) == ("timed_out", "TO", 137)
    assert said.evidence["wall_ns"] >= 250e6 and said.evidence["wall_limit_ms"] == 250
    assert said.evidence["ended_by"] == "deadline"


async def test_tasks(py: Runner) -> None:
    code = "import os, time\nfor _ in range(50):\n    os.fork() or time.sleep(60)"
    said = verdict_on(await py(code, pids=8, wall_ms=4_000), pids=8)
    assert (said.kind, said.fault, said.status) == ("process_limit", "limit", "RE")
    assert said.evidence["pids_denied_before"] == 0 < said.evidence["pids_denied"]


async def test_tasks_that_were_denied_to_a_program_that_ends_well(py: Runner) -> None:
    code = """
import os, time
try:
    for _ in range(50):
        os.fork() or time.sleep(60)
except OSError:
    os._exit(0)
"""
    said = verdict_on(await py(code, pids=8, wall_ms=4_000), pids=8)
    assert said.kind == "exited" and said.evidence["pids_denied"] > 0


async def test_a_file_over_its_size(judged: Callable[..., Any]) -> None:
    said: Verdict = await judged("exec head -c 9000 /dev/zero > file", file_size_bytes=4096)
    assert (said.kind, said.fault, said.code) == ("file_too_large", "limit", 153)


async def test_output_over_its_size(judged: Callable[..., Any]) -> None:
    said: Verdict = await judged("yes", output_bytes=1000)
    assert (said.kind, said.status) == ("output_limit", "OL")
    said = await judged("head -c 5000 /dev/zero >&2", output_bytes=1000)
    assert (said.kind, said.message) == ("exited", "stderr was cut at the output limit")


#: Each passes a limit and ends by itself at once: whether it or our kill is quicker is a race.
RACES = {
    "printf xx; exit 3": ({"output_bytes": 1}, "output_limit"),
    "printf xx; kill -KILL $$": ({"output_bytes": 1}, "output_limit"),
    "printf xx; kill -SEGV $$": ({"output_bytes": 1}, "output_limit"),
    "sleep 0.005; exit 6": ({"wall_ms": 1}, "timed_out"),
    "sleep 0.005; kill -SEGV $$": ({"wall_ms": 1}, "timed_out"),
}


@pytest.mark.parametrize("script", RACES)
async def test_a_limit_that_was_passed_is_told_whoever_was_quicker(
    judged: Callable[..., Any], script: str
) -> None:
    limits, kind = RACES[script]
    for _ in range(4):
        verdicts = await asyncio.gather(*(judged(script, **limits) for _ in range(8)))
        assert {(said.kind, said.code, said.signal_name) for said in verdicts} == {
            (kind, 137, "SIGKILL")
        }


async def test_a_missing_interpreter(run: Runner, workspace: Path) -> None:
    script = workspace / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    said = verdict_on(await run("/mnt/data/script"))
    assert (said.kind, said.fault, said.code) == ("command_not_found", "user", 127)
    assert said.evidence["exec_errno"] == errno.ENOENT


async def test_a_file_that_is_not_executable(run: Runner, workspace: Path) -> None:
    (workspace / "data").write_text("x")
    said = verdict_on(await run("/mnt/data/data"))
    assert (said.kind, said.code) == ("command_not_found", 126)
    assert said.evidence["exec_errno"] == errno.EACCES


async def test_a_forbidden_call(py: Runner) -> None:
    # bpf(2) is nothing that a program probes for.
    code = "import ctypes; ctypes.CDLL(None).syscall(321 if __import__('os').uname()"
    said = verdict_on(await py(f"{code}.machine == 'x86_64' else 280, 0, 0, 0)"))
    assert (said.kind, said.code, said.signal_name) == ("syscall_denied", 159, "SIGSYS")


async def test_no_nsjail(host: JailHost, profile: ProfileMaker) -> None:
    was, host.nsjail = host.nsjail, None
    try:
        said = verdict_on(await Jail(host, profile("true")).run())
    finally:
        host.nsjail = was
    assert (said.kind, said.fault, said.retryable) == ("jail_failed", "infrastructure", True)
    assert said.evidence["setup_failure"] == "nsjail_missing"


async def test_an_nsjail_that_refuses_its_configuration(
    host: JailHost, profile: ProfileMaker
) -> None:
    was, host.fixed = host.fixed, replace(host.fixed, seccomp="POLICY nonsense {")
    try:
        said = verdict_on(await Jail(host, profile("true")).run())
    finally:
        host.fixed = was
    assert (said.kind, said.retryable, said.code) == ("jail_failed", True, None)
    assert said.evidence["nsjail_status"] == 255 << 8
    # People are told its last word, but not where things lie on this machine.
    assert said.evidence["nsjail_line"] and "/" not in str(said.evidence["nsjail_line"])


async def test_a_bind_that_is_not_there_is_told_without_its_path(
    host: JailHost, profile: ProfileMaker, tmp_path: Path
) -> None:
    base = profile("true")
    gone = replace(base.binds[0], source=str(tmp_path / "gone"))
    said = verdict_on(await Jail(host, replace(base, binds=(gone,))).run())
    assert said.kind == "jail_failed" and str(tmp_path) not in str(said.evidence)


async def test_without_controllers_what_can_be_said_is_said(
    host: JailHost, profile: ProfileMaker
) -> None:
    cgroups, fixed = host.cgroups, host.fixed
    host.cgroups = Cgroups(Parents(), Enforcement.ADVISORY)
    host.fixed = replace(fixed, advisory=True)
    try:
        spun = await Jail(host, profile("sh", "-c", SPIN, cpu_ms=1_000)).run()
        died = await Jail(host, profile("sh", "-c", "kill -XCPU $$; sleep 3")).run()
        slept = await Jail(host, profile("sh", "-c", "sleep 30", wall_ms=200)).run()
        ended = await Jail(host, profile("sh", "-c", "exit 137")).run()
    finally:
        host.cgroups, host.fixed = cgroups, fixed
    kinds = [verdict_on(spun, cpu_ms=1_000).kind] + [
        verdict_on(facts).kind for facts in (died, slept, ended)
    ]
    assert kinds == ["cpu_exhausted", "signaled", "timed_out", "exited"]
    evidence = verdict_on(spun).evidence
    assert evidence["enforcement"] == "advisory" and evidence["oom_kills"] is None
    assert spun.wait_status == signal.SIGXCPU


@pytest.mark.parametrize("code", [0, 1, 137])
async def test_what_a_program_prints_decides_nothing(judged: Callable[..., Any], code: int) -> None:
    said_quietly: Verdict = await judged(f"exit {code}")
    lines = "\n".join(LIES)
    said: Verdict = await judged(
        f"cat <<'END'\n{lines}\nEND\ncat >&2 <<'END'\n{lines}\nEND\n"
        # Every descriptor that might lead to nsjail or to us.
        f"for fd in 3 4 5 6 7 8 9; do echo '{LIES[0]}' >&$fd; done 2>/dev/null; exit {code}"
    )
    assert (said.kind, said.fault, said.code, said.status, said.message) == (
        said_quietly.kind,
        said_quietly.fault,
        said_quietly.code,
        said_quietly.status,
        said_quietly.message,
    )
    assert said.evidence["nsjail_line"] == said_quietly.evidence["nsjail_line"]
