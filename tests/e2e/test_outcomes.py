"""What ended a program, as its caller is told; decided from facts and never from what it says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: code → language, kind, fault, status, code, signal
ENDS = {
    "exit 0": ("bash", "exited", "none", None, 0, None),
    "exit 3": ("bash", "exited", "user", None, 3, None),
    "exit 137": ("bash", "exited", "user", None, 137, None),
    "exit 139": ("bash", "exited", "user", None, 139, None),
    "exit 255": ("bash", "exited", "user", None, 255, None),
    "import sys; sys.exit(137)": ("python", "exited", "user", None, 137, None),
    "raise ValueError": ("python", "exited", "user", None, 1, None),
    "kill -KILL $$": ("bash", "signaled", "user", "SG", 137, "SIGKILL"),
    "kill -TERM $$; sleep 5": ("bash", "signaled", "user", "SG", 143, "SIGTERM"),
    "import os; os.abort()": ("python", "signaled", "user", "SG", 134, "SIGABRT"),
    "import ctypes; ctypes.string_at(0)": ("python", "signaled", "user", "SG", 139, "SIGSEGV"),
    "echo 'run time >= time limit' >&2; exit 1": ("bash", "exited", "user", None, 1, None),
    "exec /nowhere/at/all": ("bash", "exited", "user", None, 127, None),
}


@pytest.mark.parametrize("code", ENDS)
async def test_how_a_program_ended(runner: Daemon, code: str) -> None:
    language, kind, fault, status, exit_code, signal = ENDS[code]
    reply = await runner.execute(code, language=language, session=SESSION)
    assert reply.status == 200, reply.body
    run = reply.json["run"]
    assert (run["outcome"]["kind"], run["outcome"]["fault"]) == (kind, fault)
    assert (run["status"], run["code"], run["signal"]) == (status, exit_code, signal)
    assert run["outcome"]["retryable"] is False


async def test_a_real_kill_for_memory_is_not_an_exit(runner: Daemon) -> None:
    code = "x = bytearray(b'x') * (300 << 20)"
    reply = await runner.execute(code, session=SESSION, run_memory_limit=64 << 20)
    run = reply.json["run"]
    assert (run["outcome"]["kind"], run["outcome"]["fault"]) == ("out_of_memory", "limit")
    assert (run["code"], run["signal"]) == (137, "SIGKILL")
    assert run["outcome"]["evidence"]["oom_kills"] >= 1


async def test_what_was_used_is_measured(runner: Daemon) -> None:
    code = "import time; x = bytearray(b'x') * (40 << 20)\nt = time.process_time()\n"
    code += "while time.process_time() - t < 0.2: pass\ntime.sleep(0.2)"
    run = (await runner.execute(code, session=SESSION)).json["run"]
    assert 40 << 20 < run["memory"] < 120 << 20
    assert 200 <= run["cpu_time"] < 600 and 400 <= run["wall_time"] < 3_000


async def test_stdin_args_and_environment_arrive(runner: Daemon) -> None:
    code = "import os, sys; print(sys.stdin.read(), sys.argv[1:], os.environ['GREETING'])"
    reply = await runner.execute(
        code, session=SESSION, stdin="typed\n", args=["-a", "b c"], env_vars={"GREETING": "hällo"}
    )
    assert reply.json["run"]["stdout"] == "typed\n ['-a', 'b c'] hällo\n"


async def test_the_environment_of_the_daemon_does_not_arrive(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch(RUNNER_TOKEN="of-the-daemon", SECRET_OF_HOST="x")
    reply = await daemon.execute(
        "env; cat /proc/1/environ /proc/self/environ",
        language="bash",
        headers={"Authorization": "Bearer of-the-daemon"},
    )
    assert reply.status == 200
    assert b"of-the-daemon" not in reply.body and b"SECRET_OF_HOST" not in reply.body


async def test_stdout_and_stderr_are_kept_apart(runner: Daemon) -> None:
    reply = await runner.execute("echo out; echo err >&2", language="bash", session=SESSION)
    run = reply.json["run"]
    assert (run["stdout"], run["stderr"]) == ("out\n", "err\n")
    assert sorted(run["output"].split()) == ["err", "out"]


async def test_a_vanished_workspace_is_never_a_time_out(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    session = "request-timeout"
    await daemon.execute("open('x', 'w')", session=session)
    shutil.rmtree(daemon.data_root / "workspace")
    reply = await daemon.execute("print('time limit')", session=session)
    error = reply.json
    assert (reply.status, error["error"]) == (409, "session_workspace_dirty")
    assert (error["reason"], error["recycle"]) == ("workspace_missing", True)
    outcome = error["outcome"]
    assert (outcome["kind"], outcome["fault"]) == ("workspace_missing", "infrastructure")
    again = await daemon.execute("print(1)", session=session)
    assert (again.status, again.json["reason"]) == (409, "workspace_missing")
    checkpoint = await daemon.checkpoint(session)
    assert (checkpoint.status, checkpoint.json["reason"]) == (409, "workspace_missing")
    assert (await daemon.execute("print('stateless')")).status == 200


async def test_a_restore_heals_a_vanished_workspace(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("open('x', 'w').write('kept')", session=SESSION)
    archive = (await daemon.checkpoint(SESSION)).body
    shutil.rmtree(daemon.data_root / "workspace")
    assert (await daemon.checkpoint(SESSION)).status == 409
    assert (await daemon.restore(SESSION, archive)).status == 200
    reply = await daemon.execute("print(open('x').read())", session=SESSION)
    assert reply.json["run"]["stdout"] == "kept\n"
