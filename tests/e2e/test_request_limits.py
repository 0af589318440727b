"""Limits: the runtime's row and the request lower the daemon's; what was in force is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROWS = """
[[runtime]]
language = "bash"
binary = "/bin/bash"
version = ["/bin/bash", "--version"]
run = ["/bin/bash", "{entry}"]
hello = "echo hello"
limits = { run_timeout = "400ms", memory = "64MiB", pids = 7 }

[[runtime]]
language = "unlimited"
binary = "/bin/bash"
version = ["/bin/bash", "--version"]
run = ["/bin/bash", "{entry}"]
hello = "echo hello"
"""


async def test_each_runtime_has_its_own_ceilings_and_the_result_says_what_held(
    launch: Callable[..., Any], fast_dir: Path
) -> None:
    (fast_dir / "runtimes.toml").write_text(ROWS)
    daemon: Daemon = await launch(
        RUNNER_RUNTIMES=str(fast_dir / "runtimes.toml"),
        RUNNER_RUN_TIMEOUT="5s",
        RUNNER_OUTPUT_LIMIT="1000",
    )
    listed = {each["language"]: each["limits"] for each in (await daemon.get("/runtimes")).json}
    assert listed["bash"]["run_timeout"] == 400 and listed["unlimited"]["run_timeout"] == 5000
    assert (listed["bash"]["run_memory_limit"], listed["bash"]["pids"]) == (64 << 20, 7)

    run = (await daemon.execute("sleep 5", language="bash")).json["run"]
    assert run["outcome"]["kind"] == "timed_out" and run["limits"]["timeout"] == 400
    run = (await daemon.execute("sleep 0.6", language="unlimited")).json["run"]
    assert run["outcome"]["kind"] == "exited" and run["limits"]["timeout"] == 5000

    reply = await daemon.execute("true", language="bash", run_timeout=401)
    assert (reply.status, reply.json["field"]) == (400, "run_timeout")
    reply = await daemon.execute(
        "true", language="bash", run_timeout=399, run_cpu_time=300, run_memory_limit=32 << 20
    )
    assert reply.json["run"]["limits"] == {
        "timeout": 399,
        "cpu_time": 300,
        "memory_limit": 32 << 20,
        "pids": 7,
        "output": 1000,
        "open_files": 1024,
        "file_size": 1 << 30,
    }
