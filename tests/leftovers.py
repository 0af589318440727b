"""What a daemon and its jails may have left on this machine: processes, cgroups, descriptors.

Counted by UID and by data root, so that other daemons on the machine are not in the count.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from jail.cgroup import group_name

T = TypeVar("T")

#: A daemon under test runs its jails as this user; another run of the tests has another one.
TEST_UID = 400_000 + os.getpid() % 50_000
CGROUPS = Path("/sys/fs/cgroup")
#: Reaping and removing take their time on a busy machine; what stays is found all the same.
GRACE_S = 5.0
_NOTHING: dict[str, list[str]] = {"processes": [], "cgroups": [], "jobs": [], "staging": []}


def processes_of(uid: int) -> list[str]:
    """`pid state command line` of every process of a UID, zombies and stopped ones too.

    But for a zombie of init's: a killed daemon's orphan, which is dead and for init to reap.
    """
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            status = Path(entry.path, "status").read_text("utf-8", "replace")
            if f"\nUid:\t{uid}\t" in status:
                state = status.partition("\nState:\t")[2][:1]
                if state == "Z" and "\nPPid:\t1\n" in status:
                    continue
                found.append(f"{entry.name} {state} {Path(entry.path, 'cmdline').read_text()}")
    return found


def descriptors(pid: int) -> collections.Counter[str]:
    """How many of each kind a process has open; a file's kind is its path."""
    found: collections.Counter[str] = collections.Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[os.readlink(f"/proc/{pid}/fd/{name}").partition(":[")[0]] += 1
    return found


def cgroups_of(data_root: Path) -> list[Path]:
    """The group of a daemon in each hierarchy."""
    name = group_name(str(data_root))
    return [Path(top, name) for top, below, _ in os.walk(CGROUPS) if name in below]


def jail_groups(data_root: Path) -> list[str]:
    """Groups of single jails, below the daemon's own."""
    found = []
    for group in cgroups_of(data_root):
        with contextlib.suppress(FileNotFoundError):
            found += [str(each) for each in group.iterdir() if each.is_dir() and not _spare(each)]
    return found


def _spare(group: Path) -> bool:
    """Whether this is a jail that waits to be used: nsjail alone, with nothing in it yet."""
    try:
        pids = (group / "cgroup.procs").read_text().split()
        return len(pids) == 1 and "nsjail" in Path(f"/proc/{pids[0]}/cmdline").read_text()
    except OSError:
        return False


async def settled(look: Callable[[], T], wanted: T) -> T:
    """What `look` sees, once it is what is wanted or the grace is over.

    The grace is for the daemon's own readiness probe, which may be running a jail at any time.
    """
    ends = time.monotonic() + GRACE_S
    while (seen := look()) != wanted and time.monotonic() < ends:
        await asyncio.sleep(0.02)
    return seen


async def assert_nothing_left(data_root: Path, uid: int = TEST_UID) -> None:
    """No process, no jail's cgroup and no job of this daemon is left."""

    def look() -> dict[str, list[str]]:
        return {
            "processes": processes_of(uid),
            "cgroups": jail_groups(data_root),
            "jobs": os.listdir(data_root / "jobs"),
            "staging": os.listdir(data_root / "staging"),
        }

    left = {name: found for name, found in (await settled(look, _NOTHING)).items() if found}
    if left:
        raise AssertionError(f"left behind: {left}")
