"""`make test-vm`: the image as a MicroVM, under a kernel of its own with real cgroup v2.

SHORT=1 boots, shows the doctor from inside, drives and stops. The whole form also pauses, clones,
cuts the power and fills the disk.
"""

from __future__ import annotations

import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.e2e.demo import Story
from tests.image import able, drive, kernel, vm_life, vm_quota, vm_stress
from tests.image.podman import build
from tests.image.qemu import Machine, accelerator
from tests.image.telling import SHORT, block, claim, prove

#: The whole proof, in seconds, where every instruction is emulated on a busy machine.
LIMIT = 1800.0 if SHORT else 2400.0
SLOWNESS = 4


@dataclass(frozen=True, slots=True)
class Lab:
    """Makes VMs: `machine("name")`, each with a directory of its own."""

    machine: Callable[..., Machine]
    directory: Path
    place: drive.Place


async def proof(story: Story) -> None:
    able.run_vms()
    await build()
    boot = await kernel.prepare()
    with tempfile.TemporaryDirectory(prefix="vm-", dir=kernel.BUILD) as scratch:
        directory = Path(scratch)
        accelerated = await accelerator(boot, directory)
        story.chapter(
            f"A VM: qemu -M pc, {accelerated}, {re.sub('.*vmlinuz-', '', str(boot.kernel))}"
        )
        token = secrets.token_urlsafe(16)

        def machine(name: str, **more: object) -> Machine:
            start = partial(Machine, boot, accelerated, directory / name, token=token)
            return start(**more)  # type: ignore[arg-type]

        place = drive.Place(
            public=f"{drive.PUBLIC_NETWORK}.100",
            forbidden={
                "metadata": ("169.254.169.254", 80),
                "the daemon": (kernel.ADDRESS, 8080),
                "loopback": ("127.0.0.1", 8080),
            },
            slowness=SLOWNESS,
        )
        await everything(story, Lab(machine, directory, place))


async def everything(story: Story, lab: Lab) -> None:
    await doctor_inside(story, lab)
    async with lab.machine("first", append="RUNNER_RUN_TIMEOUT=120s") as first:
        claim(True, f"from power on to ready: {await first.ready():.1f} s")
        for line in first.console.splitlines():
            if line.startswith("entrypoint: "):
                block(line)
        resident = await vm_stress.metric(first, "process_resident_memory_bytes")
        claim(True, f"the idle daemon: {resident / (1 << 20):.0f} MiB")
        await drive.tell(first, lab.place, story)
        if SHORT:
            return
        await vm_stress.tell(first, lab.place, story)
        await vm_life.paused(first, story)
    limit = f"RUNNER_WORKSPACE_MAX_BYTES={vm_quota.LIMIT_BYTES >> 20}MiB RUNNER_RUN_TIMEOUT=120s"
    async with lab.machine("limited", append=limit) as limited:
        await limited.ready()
        await vm_quota.tell(limited, story)
    await vm_life.power_cut(lab.machine, lab.place, story)
    await vm_life.cloned(lab.machine, lab.directory, story)


async def doctor_inside(story: Story, lab: Lab) -> None:
    async with lab.machine("doctor", append="doctor") as machine:
        await machine.ended()
    story.chapter("The doctor inside")
    marks = ("ok  ", "degraded", "FAILED", "  ")
    lines = [line for line in machine.console.splitlines() if line.startswith(marks)]
    block("\n".join(lines))
    claim(bool(lines), "it ran")
    claim(not any(line.startswith("FAILED") for line in lines), "and finds nothing failed")
    shutil.rmtree(machine.data.parent)


if __name__ == "__main__":
    sys.exit(prove("vm", proof, limit=LIMIT))
