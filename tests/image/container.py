"""`make test-image`: the image as a container, with the flags of the README, through its port.

SHORT=1 leaves out the runs with single flags.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from tests.client import Client, Reply
from tests.e2e.demo import SESSION, TURN_3, Story, restored, stdout_is
from tests.image import drive, layers
from tests.image.podman import Container, build, doctor, podman
from tests.image.telling import SHORT, block, claim, must, prove

TOKEN = secrets.token_urlsafe(16)
#: All that the README gives, and what each is for: docs/deploy/docker.md.
FLAGS = ("--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN")
READ_ONLY = ("--read-only", "--tmpfs=/run", "--tmpfs=/tmp")
EGRESS = "--env=RUNNER_NETWORK=egress"
DATA_ROOT = "/var/lib/sandbox-runner"
NETWORK = "sandbox-runner-proof"
VOLUME = "sandbox-runner-proof"
GATEWAY, ADDRESS = f"{drive.PUBLIC_NETWORK}.1", f"{drive.PUBLIC_NETWORK}.10"
#: The whole proof, in seconds.
LIMIT = 1800.0
#: Leaves an orphan that ends at once, and then counts the dead that nobody has reaped.
ORPHAN = """
import glob, os, time
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.2)
    os._exit(0)
os.wait()
time.sleep(1)
states = []
for path in glob.glob("/proc/[0-9]*/stat"):
    try:
        states.append(open(path).read().rpartition(")")[2].split()[0])
    except OSError:
        pass
print(states.count("Z"), "zombies")
"""


async def proof(story: Story) -> None:
    await build()
    story.chapter("The image")
    block(await layers.table())
    async with public_network():
        story.chapter("With fewer flags")
        await fewer_flags()
        story.chapter("The doctor in a root shell, without a container")
        block(await must(sys.executable, "-m", "runner", "doctor"))
        story.chapter(f"The doctor with {' '.join(FLAGS)}")
        table, checks = await doctor(*FLAGS, EGRESS)
        block(table)
        claim(all(check["ok"] for check in checks.values()), "the doctor finds nothing failed")
        good, place = await whole_drive(story)
        await read_only_root(story, place, good)


@contextlib.asynccontextmanager
async def public_network() -> AsyncIterator[None]:
    """A container network with public addresses; the machine's own packets never leave it."""
    await podman("network", "rm", "--force", NETWORK)
    await must("podman", "network", "create", f"--subnet={drive.PUBLIC_NETWORK}.0/24",
               f"--gateway={GATEWAY}", NETWORK)  # fmt: skip
    try:
        yield
    finally:
        await podman("volume", "rm", "--force", VOLUME)
        await podman("network", "rm", "--force", NETWORK)


async def fewer_flags() -> None:
    """With each flag missing: the doctor names it, /health is 503 and names the same."""
    for flags in [()] if SHORT else [(), FLAGS[:1], FLAGS[1:]]:
        missing = [flag.partition("=")[2] for flag in FLAGS if flag not in flags]
        _, checks = await doctor(*flags)
        detail, remedy = checks["capabilities"]["detail"], checks["capabilities"]["remedy"]
        print(f"  with {' '.join(flags) or 'none'}")
        block(f"{detail}\n→ {remedy}")
        named = all(f"CAP_{each}" in detail and f"--cap-add={each}" in remedy for each in missing)
        claim(named, f"the doctor names {' and '.join(missing)}, and the flag to give")
        async with Container("fewer", *flags, token=TOKEN) as container:
            await container.answers(503)
            report = (await container.get("/health")).json
            failed = {check["name"]: check for check in report["checks"] if not check["ok"]}
            same = failed["capabilities"]["detail"] == detail
            same = same and set(failed) <= {n for n, c in checks.items() if not c["ok"]}
            claim(same, "/health is 503 and says the same")
            status, said = await container.healthcheck()
            claim(status == 1 and "503" in said, f"HEALTHCHECK says unhealthy: {said.strip()}")
            lines = [line for line in await container.said() if "not ready" in line]
            claim(any(all(name in line for name in missing) for line in lines), "so does the log")


async def whole_drive(story: Story) -> tuple[bytes, drive.Place]:
    place = drive.Place(
        public=GATEWAY,
        forbidden={
            "metadata": ("169.254.169.254", 80),
            "the daemon": (ADDRESS, 8080),
            "loopback": ("127.0.0.1", 8080),
        },
    )
    flags = (*FLAGS, EGRESS, f"--network={NETWORK}", f"--ip={ADDRESS}")
    story.chapter(f"A container with {' '.join(FLAGS)}")
    async with Container("plain", *flags, token=TOKEN) as container:
        echo = await asyncio.start_server(_echo, GATEWAY, drive.PUBLIC_PORT)
        async with echo:
            await container.answers(200)
            for line in await container.said():
                if line.startswith("entrypoint: "):
                    print(f"      {line}")
            good = await drive.tell(container, place, story)
        await as_pid_1(story, container)
    await as_a_child(story)
    return good, place


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(4))
    await writer.drain()
    writer.close()


async def as_pid_1(story: Story, container: Container) -> None:
    story.chapter("As PID 1")
    claim(await container.healthcheck() == (0, ""), "HEALTHCHECK says healthy")
    said = await container.execute_as_root(ORPHAN)
    claim(said == "0 zombies", f"an orphan is reaped: {said}")
    claim(await container.stop() == 143, "SIGTERM reaches the daemon: exit status 143")
    lines = [json.loads(line)["event"] for line in await container.said() if line.startswith("{")]
    claim(lines[-1] == "stopped", "and its last line is `stopped`")


async def as_a_child(story: Story) -> None:
    story.chapter("As a child of somebody else's PID 1")
    shell = ("--entrypoint=/bin/sh", *FLAGS)
    command = ("-c", "/usr/local/sbin/entrypoint serve & wait $!")
    async with Container("child", *shell, token=TOKEN, command=command) as container:
        await container.answers(200)
        lines = await container.said()
        claim(not any("PID 1" in line for line in lines), "no init of its own")
        await story.step("it runs code", container.execute("print('hello')"), stdout_is("hello"))


async def read_only_root(story: Story, place: drive.Place, good: bytes) -> None:
    story.chapter(f"Another container, {' '.join(READ_ONLY)}, its data root on a volume")
    flags = (*FLAGS, *READ_ONLY, f"--volume={VOLUME}:{DATA_ROOT}")
    seen = stdout_is("['main.py', 'squares.csv', 'squares.png'] b'PNG'")
    async with Container("read-only", *flags, token=TOKEN) as container:
        await container.answers(200)
        await story.step("health", container.get("/health"), drive.enforced)
        await story.step(
            "restore what the first one saved",
            container.restore(SESSION, good, headers=place.sealed),
            restored,
        )
        first = await story.step("turn 3 sees the files of turn 1", turn_3(container), seen)
        await container.kill()
    async with Container("read-only", *flags, token=TOKEN) as container:
        await container.answers(200)
        again = await story.step("killed and started again", turn_3(container), seen)
        claim(again.incarnation == first.incarnation, "the same incarnation")


def turn_3(container: Client) -> Coroutine[Any, Any, Reply]:
    return container.execute(TURN_3, session=SESSION, name="main.py")


if __name__ == "__main__":
    sys.exit(prove("container", proof, limit=LIMIT))
