"""What a platform does to a VM: pauses it, cuts its power, clones it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from tests.client import Client, Reply
from tests.e2e.demo import SESSION, Story, archive, files_are, refused, restored, stdout_is
from tests.image.drive import Place, ended
from tests.image.qemu import Machine
from tests.image.telling import claim
from tests.terminals import attached

HOOKS = "/aws/lambda-microvms/runtime/v1"
PAUSE = 30.0
#: Seconds that a clock may be off after a resume, as seen from the other side of an HTTP request.
CLOCK_OFF_MAX = 0.5
#: Seconds until half an archive is certainly in the staging directory.
HALF_A_RESTORE = 5.0
BIG = "import os; open('big', 'wb').write(os.urandom(24 << 20)); print('ok')"
RANDOM = {
    "/dev/urandom": ("bash", "head -c 16 /dev/urandom | od -An -tx1"),
    "python": (
        "python",
        "import random, secrets, uuid; print(secrets.token_hex(), random.random())",
    ),
    "node": ("javascript", "console.log(require('crypto').randomUUID(), Math.random())"),
}


async def hook(machine: Client, name: str, **body: Any) -> Reply:
    """One of the platform's hooks, with the time that it is."""
    sent = {"time": datetime.now(UTC).isoformat(), **body}
    return await machine.request("POST", f"{HOOKS}/{name}", json=sent)


def steps(*wanted: str) -> Callable[[Reply], str]:
    def check(reply: Reply) -> str:
        assert reply.status == 200
        done = {step["name"]: step["detail"] for step in reply.json["steps"] if step["done"]}
        assert set(wanted) <= set(done), reply.json
        return "; ".join(f"{name} {done[name]}" for name in wanted)

    return check


async def paused(machine: Machine, story: Story) -> None:
    """Half a minute without the guest: its deadlines, its clock, its terminal."""
    story.chapter(f"Paused for {PAUSE:.0f} s and resumed")
    code = "import time; time.sleep(8); print('awake')"
    async with attached(machine, SESSION) as shell:
        await shell.run("here=before")
        run = asyncio.create_task(machine.execute(code, run_timeout=20_000, run_cpu_time=20_000))
        await asyncio.sleep(2)
        await machine.monitor("stop")
        await asyncio.sleep(PAUSE)
        await machine.monitor("cont")
        await story.step(
            "resume", hook(machine, "resume"), steps("clock", "entropy", "warmed", "readiness")
        )
        await story.step("no deadline has run meanwhile", run, stdout_is("awake"))
        claim(await shell.run("echo $here") == "before\n", "the terminal is the same shell")
    before = time.time()
    reply = await machine.execute("import time; print(time.time())")
    inside = float(reply.json["run"]["stdout"])
    off = before - CLOCK_OFF_MAX <= inside <= time.time() + CLOCK_OFF_MAX
    claim(off, "a program sees the right time")
    slow = machine.execute("import time; time.sleep(60)", run_timeout=2000)
    await story.step("and deadlines run again", slow, ended("timed_out"))


async def power_cut(machine: Callable[..., Machine], place: Place, story: Story) -> None:
    """In the middle of a restore; then the same disk in another VM."""
    story.chapter("The power is cut in the middle of a restore")
    async with machine("cut") as cut:
        await cut.ready()
        await story.step(
            "24 MiB of random bytes", cut.execute(BIG, session=SESSION, name="main.py"),
            stdout_is("ok"),
        )  # fmt: skip
        good = await story.step(
            "checkpoint", cut.checkpoint(SESSION, headers=place.sealed), archive
        )
        began = asyncio.create_task(cut.restore(SESSION, _half(good.body), headers=place.sealed))
        await asyncio.sleep(HALF_A_RESTORE)
        await cut.kill()
        with contextlib.suppress(aiohttp.ClientError, OSError):
            await began
    async with machine("again", data=cut.data) as again:
        claim(True, f"the same disk, ready after {await again.ready():.1f} s")
        await story.step(
            "neither half a checkpoint nor what was before",
            again.get("/session/files", session=SESSION),
            files_are(),
        )
        await story.step(
            "restore", again.restore(SESSION, good.body, headers=place.sealed), restored
        )
        await story.step(
            "all of it", again.get("/session/files", session=SESSION), files_are("big", "main.py")
        )


async def _half(whole: bytes) -> AsyncIterator[bytes]:
    yield whole[: len(whole) // 2]
    await asyncio.Event().wait()  # until the connection is cut


async def cloned(machine: Callable[..., Machine], directory: Path, story: Story) -> None:
    """A snapshot of a VM that is ready, and two VMs resumed from it, for the same session."""
    story.chapter("A snapshot and two clones of it")
    snapshot = directory / "snapshot"
    async with machine("template") as template:
        await template.ready()
        await story.step("ready, says the hook", hook(template, "ready"), _ok)
        await template.snapshot(snapshot)
    for name in ("one", "two"):
        (directory / name).mkdir()
        shutil.copy(template.data, directory / name / "data.ext4")
    async with machine("one", incoming=snapshot) as one, machine("two", incoming=snapshot) as two:
        began = time.monotonic()
        for each in (one, two):
            await each.resume()
            await each.ready()
        claim(True, f"both resumed and ready after {time.monotonic() - began:.1f} s")
        before = [await _random_bytes(each) for each in (one, two)]
        shared = "the same" if before[0] == before[1] else "other"
        print(f"    without a hook, /dev/urandom gives both {shared} bytes")
        for each, name in ((one, "one"), (two, "two")):
            payload = json.dumps({"runtime_session_id": SESSION})
            await story.step(
                f"clone {name} is told to run",
                hook(each, "run", microvmId=f"vm-{name}", runHookPayload=payload),
                steps("clock", "entropy", "warmed"),
            )
        await _differ(one, two, story)


async def _random_bytes(machine: Machine) -> str:
    """Of a stateless execution: it binds nothing."""
    language, code = RANDOM["/dev/urandom"]
    return str((await machine.execute(code, language=language)).json["run"]["stdout"])


def _ok(reply: Reply) -> str:
    assert reply.status == 200
    return str(reply.json["status"])


async def _differ(one: Machine, two: Machine, story: Story) -> None:
    for name, (language, code) in RANDOM.items():
        said = [
            (await each.execute(code, language=language, session=SESSION)).json["run"]["stdout"]
            for each in (one, two)
        ]
        claim(all(said) and said[0] != said[1], f"other random bytes from {name}")
    names = [(await each.get("/health")).incarnation for each in (one, two)]
    claim(None not in names and names[0] != names[1], "another incarnation")
    sealed = await story.step(
        "a checkpoint under the disk's own key", one.checkpoint(SESSION), archive
    )
    await story.step(
        "which the other clone does not have",
        two.restore(SESSION, sealed.body),
        refused(422, "checkpoint_unauthentic"),
    )
