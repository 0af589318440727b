"""What of /proc and of the cgroups a container was given, told from its mount table. Pure.

Formats: proc(5) for /proc/self/mountinfo and uid_map. Nothing here mounts anything: entrypoint.sh
does, and these say what it could not.
"""

from __future__ import annotations

from dataclasses import dataclass

#: uid_map of the machine's own user namespace: all ids, as they are.
_ALL_IDS = ["0", "0", "4294967295"]


@dataclass(frozen=True, slots=True)
class Mounted:
    """One line of mountinfo."""

    target: str
    fstype: str
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class Lack:
    """What is not as it should be, and what to do about it."""

    what: str
    remedy: str


def parse(mountinfo: str) -> tuple[Mounted, ...]:
    """The mounts, in the order of the table."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, fs_fields = left.split(" "), right.split(" ")
        if len(fields) >= 6:
            options = fields[5].split(",")
            found.append(Mounted(fields[4], fs_fields[0], "ro" in options))
    return tuple(found)


def hidden_proc(mounts: tuple[Mounted, ...], uid_map: str) -> Lack | None:
    """Why the kernel would not give a jail a /proc of its own, if it would not.

    In a user namespace a fresh procfs is refused while parts of the one there is are mounted over
    (`mount_too_revealing` of the kernel's fs/namespace.c); in the machine's own it never is.
    """
    over = [mount.target for mount in mounts if mount.target.startswith("/proc/")]
    if not over or uid_map.split() == _ALL_IDS:
        return None
    return Lack(
        f"hidden behind mounts: {', '.join(sorted(set(over)))}",
        "run without a user namespace, or with --security-opt unmask=ALL "
        "(Docker: systempaths=unconfined)",
    )


def unusable_cgroups(mounts: tuple[Mounted, ...]) -> Lack:
    """Why no limit of ours can be in force there; asked only where none is."""
    cgroups = [mount for mount in mounts if mount.fstype in ("cgroup", "cgroup2")]
    if not cgroups:
        return Lack("none is mounted", "mount cgroup2 at /sys/fs/cgroup")
    if all(mount.is_read_only for mount in cgroups):
        return Lack(
            "mounted read-only",
            "add CAP_SYS_ADMIN, with which the entrypoint makes them writable, "
            "or mount /sys/fs/cgroup writable",
        )
    return Lack(
        "the controllers memory and pids were not handed down to this group",
        "delegate a group with memory, pids and cpu",
    )
