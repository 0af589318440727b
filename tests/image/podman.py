"""A container of the image, run by podman and spoken to through its published port."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

from tests.client import Client
from tests.harness import REPOSITORY
from tests.image import able
from tests.image.telling import CannotRun, Ran, answers, free_port, must, run

IMAGE = "sandbox-runner"
CAP_SYS_RESOURCE = 24
READY_TIMEOUT = 60.0
#: From nothing, with a base to be made and a slow mirror.
BUILD_TIMEOUT = 1200.0


def _engine() -> list[str]:
    """podman as this machine needs it. runc, because crun refuses a mix of cgroup v1 and v2."""
    manager = [] if os.path.exists("/run/systemd/private") else ["--cgroup-manager=cgroupfs"]
    return ["podman", *manager, "--runtime=runc"]


def _limits() -> list[str]:
    """Where even root may not raise a limit, podman's own defaults are too high to be set."""
    status = Path("/proc/self/status").read_text("ascii")
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    if effective & (1 << CAP_SYS_RESOURCE):
        return []
    # What podman has lowered for itself before is lower than what is seen here.
    hard = {
        "nofile": min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 20_000),
        "nproc": min(resource.getrlimit(resource.RLIMIT_NPROC)[1], 32_768),
    }
    return [f"--ulimit={name}={limit}:{limit}" for name, limit in hard.items()]


async def podman(*argv: str) -> Ran:
    """Runs a podman command to its end."""
    return await run(*_engine(), *argv)


async def build() -> None:
    """Builds the image, of which most is kept from the last time."""
    await able.build_images()
    await must(str(REPOSITORY / "image/build"), IMAGE, "--quiet", timeout=BUILD_TIMEOUT)
    ran = await podman(
        "run", "--rm", "--no-healthcheck", *_limits(), "--entrypoint=/bin/true", IMAGE
    )
    if ran.status != 0:
        raise CannotRun(f"no container can be run: {ran.err.strip().splitlines()[-1]}")


async def doctor(*flags: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """The doctor's table in a container with these flags, and its checks by name."""
    argv = [*_engine(), "run", "--rm", "--no-healthcheck", *_limits()]
    argv += ["--env=RUNNER_TOKEN=unused", *flags, IMAGE]
    table = await run(*argv, "doctor")
    report = json.loads((await run(*argv, "doctor", "--json")).out)
    return table.out, {check["name"]: check for check in report["checks"]}


async def in_a_shell(script: str) -> str:
    """What a shell script prints in a container that can do nothing else."""
    flags = ("--rm", "--no-healthcheck", "--network=none", *_limits())
    return await must(*_engine(), "run", *flags, "--entrypoint=/bin/sh", IMAGE, "-c", script)


class Container(Client):
    """One container; `async with` stops and removes it."""

    def __init__(self, name: str, *flags: str, token: str, command: tuple[str, ...] = ()) -> None:
        """`flags` of `podman run`; `command` instead of the image's own."""
        super().__init__()
        self.name = f"sandbox-runner-proof-{name}"
        self._flags = flags
        self._token = token
        self._command = command

    async def __aenter__(self) -> Container:
        port = free_port()
        await podman("rm", "--force", "--volumes", "--time=1", self.name)
        await must(
            *_engine(), "run", "--detach", "--name", self.name, *_limits(),
            f"--publish=127.0.0.1:{port}:8080", f"--env=RUNNER_TOKEN={self._token}",
            *self._flags, IMAGE, *self._command,
        )  # fmt: skip
        self.open(f"http://127.0.0.1:{port}", token=self._token)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        await podman("rm", "--force", "--volumes", "--time=1", self.name)

    async def answers(self, status: int) -> None:
        """Waits until /health answers with this status."""
        await answers(self, status, within=READY_TIMEOUT)

    async def execute_as_root(self, code: str) -> str:
        """Runs Python in the container, outside of any jail; what it printed."""
        python = "/opt/sandbox-runner/bin/python"
        return await must(*_engine(), "exec", self.name, python, "-c", code)

    async def healthcheck(self) -> tuple[int, str]:
        """What the image's HEALTHCHECK exits with, 0 if it is well, and prints.

        Of the log: podman's own status is 1 also where the command could not be started.
        """
        await podman("healthcheck", "run", self.name)
        health = await must(*_engine(), "inspect", "--format={{json .State.Health}}", self.name)
        last = json.loads(health)["Log"][-1]
        return last["ExitCode"], last["Output"]

    async def said(self) -> list[str]:
        """The lines of its log."""
        ran = await podman("logs", self.name)
        return (ran.out + ran.err).splitlines()

    async def stop(self) -> int:
        """SIGTERM; the container's exit status."""
        await podman("stop", "--time=20", self.name)
        return int(await must(*_engine(), "inspect", "--format={{.State.ExitCode}}", self.name))

    async def kill(self) -> None:
        """SIGKILL to all of it."""
        await podman("kill", "--signal=KILL", self.name)
        await podman("wait", self.name)
