"""Groups of jails that cannot be removed, as those of a process that does not die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness import Daemon
from tests.leftovers import jail_groups


@contextmanager
def kept(groups: list[str]) -> Iterator[None]:
    """Groups that cannot be removed: each has a child."""
    inner = [os.path.join(group, "held") for group in groups]
    for path in inner:
        os.mkdir(path)
    try:
        yield
    finally:
        for path in inner:
            os.rmdir(path)


async def stopped(daemon: Daemon, program: str) -> tuple[int, list[str]]:
    """A process with such a command line, stopped, and the groups of the jail in which it runs."""

    def found() -> tuple[int, str] | None:
        for group in jail_groups(daemon.data_root):
            with contextlib.suppress(OSError):
                for pid in map(int, Path(group, "cgroup.procs").read_text().split()):
                    said = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                    if re.search(program, said):
                        os.kill(pid, signal.SIGSTOP)
                        return pid, os.path.basename(group)
        return None

    async with asyncio.timeout(10):
        while (there := found()) is None:
            await asyncio.sleep(0.005)
    pid, name = there
    return pid, [each for each in jail_groups(daemon.data_root) if os.path.basename(each) == name]


async def groups_of(daemon: Daemon, program: str) -> list[str]:
    """Those of the jail in which a process with such a command line runs."""
    pid, groups = await stopped(daemon, program)
    os.kill(pid, signal.SIGCONT)
    return groups
