"""Many executions, one in ten hostile, and whether anything of the daemon's grows with them.

    python -m tests.soak [COUNT]    `make soak`: 3,000; prints a table, fails if something has grown

Rounds of mixed executions run at once, stateless and in a session; after each, when nothing runs
any more, the daemon is measured from outside. The first fifth of the rounds warms it up (thread
pools, caches, imported modules); the last fifth is compared with the second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import aiohttp

from tests.harness import Daemon
from tests.leftovers import TEST_UID, jail_groups, processes_of, settled

ROUNDS = 20
WORKERS = 4
SESSION = "soaking"
#: Of the resident memory when the daemon was warm.
RSS_GROWTH_MAX = 1.10
#: What may be open at the moment of one look and not of another: a connection, a probe's jail.
FDS_SLACK = 4

#: language, program, the kinds of outcome that it may have
Program = tuple[str, str, frozenset[str]]
EXITED = frozenset({"exited"})
PLAIN: tuple[Program, ...] = (
    ("python", "print('hello')", EXITED),
    ("python", "import sys; sys.exit(3)", EXITED),
    ("python", "open('made', 'w').write('x' * 5000); print(open('given').read())", EXITED),
    ("python", "import os; open('made', 'wb').write(os.urandom(200_000))", EXITED),
    ("python", "import json, re, ssl, sqlite3; print(sum(range(100_000)))", EXITED),
    ("bash", "cat given; for i in 1 2 3; do echo $i > out-$i; done", EXITED),
    ("bash", "kill -TERM $$; sleep 5", frozenset({"signaled"})),
    ("bash", "head -c 300000 /dev/urandom | base64", EXITED),
    ("bash", "mkdir -p a/b/c; ln -sf ../given a/link; touch a/b/c/d; rm -rf a", EXITED),
    ("bash", "exec /nowhere", EXITED),
)
HOSTILE: tuple[Program, ...] = (
    ("bash", "f() { f | f & }; f; sleep 9", frozenset({"timed_out", "process_limit"})),
    ("python", "x = []\nwhile True: x.append(bytearray(b'x') * (4 << 20))",
     frozenset({"out_of_memory"})),
    ("bash", "yes", frozenset({"output_limit"})),
    ("python", "while True: pass", frozenset({"timed_out", "cpu_exhausted"})),
    ("bash", "trap '' TERM; (setsid sleep 60 &) ; kill -STOP $$", frozenset({"timed_out"})),
    ("python", "import ctypes; ctypes.CDLL(None).syscall(321, 0, 0, 0)",
     frozenset({"syscall_denied", "exited"})),
    ("python", "import os\ntry:\n  while True: os.mknod(f'/tmp/{len(os.listdir(\"/tmp\"))}')\n"
     "except OSError: pass", frozenset({"timed_out", "exited"})),
    ("bash", "for i in $(seq 40); do (setsid sleep 60 >/dev/null 2>&1 &); done; exit 0", EXITED),
)  # fmt: skip
LIMITS = {"run_timeout": 700, "run_memory_limit": 96 << 20}


@dataclass(frozen=True, slots=True)
class Measure:
    """The daemon, at a moment when nothing runs."""

    executed: int
    seconds: float
    rss_kib: int
    fds: int
    threads: int
    tasks: int
    cgroups: int
    temp_files: int
    processes: int


class Soak:
    """One daemon and what is done to it."""

    def __init__(self, daemon: Daemon, *, seed: int = 1) -> None:
        self._daemon = daemon
        self._random = random.Random(seed)
        self._begun = time.monotonic()
        self._executed = 0
        self._archive = b""
        self.kinds: Counter[str] = Counter()

    async def run(self, count: int, *, tell: Callable[[Measure], None] = lambda _: None) -> None:
        """`count` executions in rounds; raises AssertionError for one that ends wrongly."""
        each = -(-count // ROUNDS)
        for first in range(0, each * ROUNDS, each):
            await self._in_parallel(range(first, first + each))
            tell(await self.measure())

    async def _in_parallel(self, numbers: Sequence[int]) -> None:
        places = asyncio.Semaphore(WORKERS)
        session = asyncio.Lock()

        async def placed(number: int) -> None:
            # The session takes one at a time; the others run beside it.
            async with places, session if number % 4 == 0 else contextlib.nullcontext():
                await self._one(number)

        async with asyncio.TaskGroup() as group:
            for number in numbers:
                group.create_task(placed(number))

    async def _one(self, number: int) -> None:
        self._executed += 1
        session = SESSION if number % 4 == 0 else None
        hostile = number % 10 == 9
        language, code, expected = self._random.choice(HOSTILE if hostile else PLAIN)
        if hostile:
            # On a machine that is busy any of them may reach its short time limit first.
            expected |= {"timed_out"}
        body = {
            "code": code,
            "language": language,
            "session": session,
            "files": [{"name": "given", "content": f"given {number % 7}"}],
        } | (LIMITS if hostile else {})
        if number % 37 == 5:
            await self._left(body)
            return
        reply = await self._daemon.execute(**body)  # type: ignore[arg-type]
        assert reply.status == 200, reply.body
        kind = reply.json["run"]["outcome"]["kind"]
        assert kind in expected, (code, reply.json["run"])
        self.kinds[kind] += 1
        if session and number % 40 == 0:
            await self._moved()

    async def _left(self, body: dict[str, object]) -> None:
        """A client that goes away in the middle."""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(self._random.uniform(0.01, 0.1)):
                await self._daemon.execute(**body)  # type: ignore[arg-type]
        self.kinds["client left"] += 1

    async def _moved(self) -> None:
        """The session is saved and restored; now and then from an archive that is cut."""
        saved = await self._daemon.checkpoint(SESSION)
        assert saved.status == 200, saved.body
        broken = self._random.random() < 0.3
        archive = saved.body[: len(saved.body) // 2] if broken else saved.body
        restored = await self._daemon.restore(SESSION, archive)
        assert restored.status == (422 if broken else 200), restored.body
        self.kinds["restored" if not broken else "restore refused"] += 1

    async def measure(self) -> Measure:
        """Waits until nothing runs, and looks."""
        root, pid = self._daemon.data_root, self._daemon.pid
        processes = await settled(lambda: processes_of(TEST_UID), [])
        cgroups = await settled(lambda: jail_groups(root), [])
        metrics = (await self._daemon.get("/metrics")).body.decode()
        status = Path(f"/proc/{pid}/status").read_text()
        return Measure(
            executed=self._executed,
            seconds=round(time.monotonic() - self._begun, 1),
            rss_kib=int(re.search(r"VmRSS:\s+(\d+)", status)[1]),  # type: ignore[index]
            fds=len(os.listdir(f"/proc/{pid}/fd")),
            threads=_gauge(metrics, "runner_threads"),
            tasks=_gauge(metrics, "runner_tasks"),
            cgroups=len(cgroups),
            temp_files=sum(
                len([n for n in os.listdir(root / name) if n != "rootfs"])
                for name in ("jobs", "staging", "runtime")
            ),
            processes=len(processes),
        )


def _gauge(metrics: str, name: str) -> int:
    found = re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)
    assert found is not None, name
    return round(float(found[1]))


def grown(measures: Sequence[Measure]) -> list[str]:
    """What has grown since the daemon was warm, in words: the last fifth against the second."""
    fifth = max(len(measures) // 5, 1)
    warm, late = measures[fifth : 2 * fifth], measures[-fifth:]
    found = []
    # One look catches a spare jail half-made or a buffer not yet given back; its fellows do not.
    before, after = (statistics.median(m.rss_kib for m in some) for some in (warm, late))
    if after > before * RSS_GROWTH_MAX:
        found.append(f"resident memory from {before:.0f} to {after:.0f} KiB")
    for name, slack in (("fds", FDS_SLACK), ("tasks", 1), ("threads", 1)):
        most, least = max(getattr(m, name) for m in warm), min(getattr(m, name) for m in late)
        if least > most + slack:
            found.append(f"{name} from {most} to {least}")
    for name in ("cgroups", "temp_files", "processes"):
        if min(getattr(m, name) for m in late):
            found.append(f"{name}: {getattr(late[-1], name)} left")
    return found


def row(measure: Measure) -> str:
    """A line of the table."""
    return "| " + " | ".join(str(getattr(measure, each.name)) for each in fields(Measure)) + " |"


async def main(count: int) -> int:
    root = Path(tempfile.mkdtemp(prefix="sandbox-runner-soak-", dir="/dev/shm"))
    measures: list[Measure] = []

    def tell(measure: Measure) -> None:
        measures.append(measure)
        print(row(measure), flush=True)

    print("| " + " | ".join(each.name for each in fields(Measure)) + " |")
    print("|" + "---|" * len(fields(Measure)))
    try:
        async with Daemon(root / "data", {"RUNNER_SESSION_UID": str(TEST_UID)}) as daemon:
            soak = Soak(daemon)
            await soak.run(count, tell=tell)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print("\n" + ", ".join(f"{kind}: {number}" for kind, number in sorted(soak.kinds.items())))
    for line in grown(measures):
        print(f"grown: {line}")
    return 1 if grown(measures) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)))
