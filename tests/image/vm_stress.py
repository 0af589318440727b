"""What a guest can do to its VM, with the daemon answering all the while."""

from __future__ import annotations

import asyncio
import re
import time

from tests.client import Client
from tests.e2e.demo import SESSION, TURN_2, Story, stdout_is
from tests.image.drive import Place, ended, enforced
from tests.image.telling import claim

#: Goes on when it is refused more processes.
STUBBORN_FORKS = """
import os, time
while True:
    try:
        if os.fork() == 0: time.sleep(60)
    except OSError:
        pass
"""
#: Three of these are more than the VM has; each alone is within its jail's limit.
HOG = "x = bytearray(b'x') * (450 << 20)\nimport time; time.sleep(30)"
HOGS = 3
HOG_TIMEOUT_MS = 100_000
FILL = """
with open('big', 'wb') as file:
    while True:
        file.write(bytes(1 << 20))
"""
#: Seconds: the daemon answers in this while a guest rages, under emulation.
ANSWER_MAX = 5.0


async def tell(runner: Client, place: Place, story: Story) -> None:
    """A fork bomb, more memory than there is, a full disk."""
    story.chapter("The daemon outlives its guest")
    await _bombed(runner, place, story)
    await _short_of_memory(runner, story)
    await _full(runner, story)


async def _bombed(runner: Client, place: Place, story: Story) -> None:
    slowest = 0.0
    timeout_ms = 2000 * place.slowness
    bomb = asyncio.create_task(
        runner.execute(STUBBORN_FORKS, session=SESSION, name="main.py", run_timeout=timeout_ms)
    )
    while not bomb.done():
        began = time.monotonic()
        reply = await runner.get("/health?level=alive")
        slowest = max(slowest, time.monotonic() - began)
        assert reply.status == 200
        await asyncio.sleep(0.1)
    await story.step("a fork bomb that does not give up", bomb, ended("timed_out"))
    claim(slowest < ANSWER_MAX, f"the slowest answer meanwhile: {slowest * 1000:.0f} ms")
    await story.step("health", runner.get("/health"), enforced)


async def _short_of_memory(runner: Client, story: Story) -> None:
    born = await metric(runner, "process_start_time_seconds")
    replies = await asyncio.gather(
        *(runner.execute(HOG, run_timeout=HOG_TIMEOUT_MS) for _ in range(HOGS))
    )
    runs = sorted((reply.json["run"] for reply in replies), key=lambda run: run["memory"])
    said = [f"{run['outcome']['kind']} at {run['memory'] >> 20} MiB" for run in runs]
    short = {run["outcome"]["kind"] for run in runs}
    claim("out_of_memory" in short, f"{HOGS} of 450 MiB at once in 1 GiB: {', '.join(said)}")
    await story.step("health", runner.get("/health"), enforced)
    same = await metric(runner, "process_start_time_seconds") == born
    claim(same, "the daemon is the one of before")


async def metric(runner: Client, name: str) -> float:
    """One value of /metrics."""
    text = (await runner.get("/metrics")).body.decode()
    found = re.search(rf"^{name} (\S+)", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


async def _full(runner: Client, story: Story) -> None:
    await story.step(
        "a program fills the disk",
        runner.execute(FILL, session=SESSION, name="main.py"),
        ended("storage_full"),
    )
    await story.step(
        "the next one makes room",
        runner.execute("import os; os.unlink('big'); print('ok')", session=SESSION, name="main.py"),
        stdout_is("ok"),
    )
    await story.step(
        "and the session goes on",
        runner.execute(TURN_2, session=SESSION, name="main.py"),
        stdout_is("10 rows, the last square is 100"),
    )
