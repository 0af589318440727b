"""Whether this machine can run a proof at all: found out by trying, and said plainly if not."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tests.image.telling import CannotRun, Ran, run

TRY_TIMEOUT = 60.0
_EMPTY = "FROM scratch\nCOPY Dockerfile /\n"


async def build_images() -> None:
    """Builds an image of one file. Raises `CannotRun`."""
    _needs("buildah", "podman", "runc")
    if os.geteuid() != 0:
        raise CannotRun("images are built and run by root here")
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "Dockerfile").write_text(_EMPTY)
        tag = "sandbox-runner-try"
        ran = await run("buildah", "bud", "--isolation", "chroot", "-t", tag, directory,
                        timeout=TRY_TIMEOUT)  # fmt: skip
        _worked(ran, "an image of one file cannot be built")
        await run("buildah", "rmi", tag)


def run_vms() -> None:
    """Only what has to be there; whether one boots is tried with the kernel. Raises `CannotRun`."""
    _needs("qemu-system-x86_64", "busybox", "mkfs.ext4")
    if os.uname().machine != "x86_64":
        raise CannotRun("the kernel of the proof is for x86-64")


def _needs(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise CannotRun(f"not installed, and could not be: {', '.join(missing)}")


def _worked(ran: Ran, otherwise: str) -> None:
    if ran.status != 0:
        last = (ran.err.strip().splitlines() or ["no word of why"])[-1]
        raise CannotRun(f"{otherwise}: {last}")
