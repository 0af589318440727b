"""Programs that try to stay, to starve the machine or to drown the daemon, through HTTP.

Each ends with the right outcome within its limit and a second, leaves no process and no cgroup, and
`/health` answers in under 250 ms all the while: those are numbers of the contract.
"""

from __future__ import annotations

import asyncio
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon, Reply
from tests.leftovers import assert_nothing_left

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.alone]

LIMIT_MS = 700
HEALTH_MAX_S = 0.250
AFTER_LIMIT_S = 1.0


@dataclass(frozen=True)
class Program:
    """`within_s`: None for one that runs into its time limit."""

    code: str
    outcome: str
    language: str = "bash"
    status: str | None = "TO"
    limits: dict[str, int] = field(default_factory=dict)
    within_s: float | None = None


PROGRAMS = {
    "fork bomb": Program("f() { f | f & }; f; sleep 60", "timed_out"),
    "fork bomb of python": Program(
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", "timed_out", "python"
    ),
    "memory bomb": Program(
        "held = []\nwhile True: held.append(bytearray(b'x') * (4 << 20))",
        "out_of_memory",
        "python",
        "SG",
        {"run_memory_limit": 96 << 20, "run_timeout": 5_000},
    ),
    "memory bomb in a child": Program(
        "python3 -c \"x = bytearray(b'x') * (400 << 20)\"; exit $?",
        "out_of_memory",
        status="SG",
        limits={"run_memory_limit": 96 << 20, "run_timeout": 5_000},
    ),
    "1 GiB of output": Program(
        "head -c 1073741824 /dev/zero", "output_limit", status="OL", limits={"run_timeout": 5_000}
    ),
    "ignores SIGTERM": Program("trap '' TERM INT HUP QUIT; while :; do sleep 1; done", "timed_out"),
    "stops itself": Program("kill -STOP $$", "timed_out"),
    "stops all it can see": Program("sleep 60 & kill -STOP -1; kill -STOP $$", "timed_out"),
    "spins in a signal handler": Program(
        "import signal\nsignal.signal(15, lambda *_: None)\nwhile True: pass", "timed_out", "python"
    ),
    "leaves a daemon behind": Program(
        "(setsid sh -c 'trap \"\" TERM; sleep 60' >/dev/null 2>&1 &) & exit 0",
        "exited",
        status=None,
        limits={"run_timeout": 5_000},
        within_s=1.0,
    ),
    "a daemon that holds the output open": Program(
        "(setsid sleep 60 &) & echo done", "exited", status=None, within_s=1.0
    ),
}


@contextmanager
def health_polled(daemon: Daemon) -> Iterator[list[float]]:
    """Seconds that /health took, asked again and again.

    On a thread with a connection of its own: what this process does with an answer of megabytes is
    not the daemon's time.
    """
    took: list[float] = []
    done = threading.Event()
    statuses = set()

    def poll() -> None:
        host, port = daemon.url.removeprefix("http://").split(":")
        client = http.client.HTTPConnection(host, int(port), timeout=5)
        while not (took and done.wait(0.005)):
            begun = time.monotonic()
            client.request("GET", "/health")
            reply = client.getresponse()
            reply.read()
            took.append(time.monotonic() - begun)
            statuses.add(reply.status)
        client.close()

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        yield took
    finally:
        done.set()
        polling.join()
    assert statuses == {200}


async def run(daemon: Daemon, program: Program, *, session: str | None) -> tuple[Reply, float]:
    begun = time.monotonic()
    limits = {"run_timeout": LIMIT_MS} | program.limits
    reply = await daemon.execute(
        program.code, language=program.language, session=session, name="hostile", **limits
    )
    return reply, time.monotonic() - begun


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_hostile_program_is_ended_in_time_and_leaves_nothing(
    runner: Daemon, name: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    program = PROGRAMS[name]
    with health_polled(runner) as took:
        reply, seconds = await run(runner, program, session=SESSION)
    stage = reply.json["run"]
    assert (stage["outcome"]["kind"], stage["status"]) == (program.outcome, program.status), stage
    limit = (program.limits.get("run_timeout", LIMIT_MS)) / 1000
    assert seconds < (program.within_s or limit + AFTER_LIMIT_S)
    assert stage["outcome"]["evidence"]["proven_empty"] is True
    record_testsuite_property(f"health_max_ms, {name}", round(max(took) * 1000))
    assert max(took) < HEALTH_MAX_S
    await assert_nothing_left(runner.data_root)
    after = await runner.execute("print('next')", session=SESSION)
    assert after.json["run"]["stdout"] == "next\n"


async def test_the_flood_is_cut_at_the_limit_and_not_kept(runner: Daemon) -> None:
    reply, _ = await run(runner, PROGRAMS["1 GiB of output"], session=None)
    stage = reply.json["run"]
    assert stage["truncated"] is True and len(stage["stdout"]) == 1 << 20


async def test_six_bombs_at_once_leave_the_daemon_answering(runner: Daemon) -> None:
    bombs = [PROGRAMS[name] for name in ("fork bomb", "memory bomb", "1 GiB of output")]
    with health_polled(runner) as took:
        replies = await asyncio.gather(*(run(runner, bomb, session=None) for bomb in bombs * 2))
    kinds = [reply.json["run"]["outcome"]["kind"] for reply, _ in replies]
    assert kinds == [bomb.outcome for bomb in bombs * 2]
    assert max(took) < HEALTH_MAX_S
    await assert_nothing_left(runner.data_root)
