"""Finds where on this machine our cgroups can be, on v2 and on v1, and what holds limits there.

Reads /proc/self/mountinfo and /proc/self/cgroup (proc(5), cgroups(7)); makes the owner's parent
groups. It never unmounts, and never moves a process that is not of the daemon's own line.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass

#: Where the daemon puts itself when its own v2 group has to hand controllers down: a group with
#: controllers for its children may hold no process (kernel, cgroup-v2.rst, "No Internal Process").
DAEMON_LEAF = "sandbox-runner.daemon"
_WANTED = ("memory", "pids", "cpu")
#: For the daemon's own group, beside the one that holds all jails: memory that is not reclaimed for
#: the guests' sake (cgroup-v2.rst, memory.min), and ten times their weight when the CPU is short.
_DAEMONS_OWN = {"memory.min": str(64 << 20), "cpu.weight": "1000"}


@dataclass(frozen=True, slots=True)
class MountedHierarchy:
    """One cgroup file system: where it is mounted, and the daemon's own group in it."""

    mount_point: str
    own_group: str
    controllers: frozenset[str]
    is_v2: bool


@dataclass(frozen=True, slots=True)
class Parents:
    """The directories below which each execution gets its own group. None: nothing counts that.

    `memory` and `pids` hold limits; `unified` is a v2 group, with or without controllers: it has
    cgroup.kill, cgroup.freeze, populated and cpu.stat. `cpuacct` and `freezer` are used only where
    there is no v2 at all.
    """

    memory: str | None = None
    memory_is_v2: bool = False
    pids: str | None = None
    unified: str | None = None
    cpuacct: str | None = None
    freezer: str | None = None

    @property
    def directories(self) -> tuple[str, ...]:
        """Each directory once; the v2 group first, so that it is there for a kill."""
        each = (self.unified, self.memory, self.pids, self.cpuacct, self.freezer)
        return tuple(dict.fromkeys(path for path in each if path is not None))


def parse_mounted(mountinfo: str, own_cgroup: str) -> tuple[MountedHierarchy, ...]:
    """Pairs each mounted hierarchy with the daemon's group in it. Pure."""
    own: dict[str, str] = {}
    for line in own_cgroup.splitlines():
        _, names, path = line.split(":", 2)
        own[names] = path
    found: dict[frozenset[str], MountedHierarchy] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        mount_fields, fs_fields = left.split(" "), right.split(" ")
        if len(mount_fields) < 6 or len(fs_fields) < 3:
            continue
        fstype = fs_fields[0]
        root, mount_point = _unescaped(mount_fields[3]), _unescaped(mount_fields[4])
        if fstype == "cgroup2":
            names, path = "", own.get("", "/")
        elif fstype == "cgroup":
            options = set(fs_fields[2].split(","))
            names = next((name for name in own if name and set(name.split(",")) <= options), "")
            if not names:
                continue
            path = own[names]
        else:
            continue
        controllers = frozenset(filter(None, names.split(",")))
        group = os.path.join(mount_point, _below(path, root)).rstrip("/")
        hierarchy = MountedHierarchy(mount_point, group, controllers, fstype == "cgroup2")
        found.setdefault(controllers, hierarchy)
    return tuple(found.values())


def _unescaped(field: str) -> str:
    """mountinfo writes space, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _below(path: str, root: str) -> str:
    """`path` relative to a mount's `root`; the mount point itself if it is not below it."""
    if root in ("/", path) or path.startswith(root + "/"):
        relative = path.removeprefix(root) if root != "/" else path
        # A group outside of our cgroup namespace shows as /../..
        return "" if "/.." in relative else relative.strip("/")
    return ""


def read_mounted() -> tuple[MountedHierarchy, ...]:
    """The hierarchies of this machine, as the daemon sees them."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mountinfo = file.read()
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        return parse_mounted(mountinfo, file.read())


def make_parents(mounted: tuple[MountedHierarchy, ...], group_name: str) -> Parents:
    """Makes the owner's groups wherever they can be had; whatever cannot be had is None."""
    unified = next((each for each in mounted if each.is_v2), None)
    v1 = {name: each for each in mounted for name in each.controllers if not each.is_v2}
    unified_dir = _make_v2(unified, group_name) if unified else None
    handed_down = _controllers(unified_dir, "cgroup.subtree_control") if unified_dir else set()
    if {"memory", "pids"} <= handed_down:
        return Parents(unified_dir, True, unified_dir, unified_dir)
    return Parents(
        memory=_make_v1(v1.get("memory"), group_name),
        pids=_make_v1(v1.get("pids"), group_name),
        unified=unified_dir,
        cpuacct=None if unified_dir else _make_v1(v1.get("cpuacct"), group_name),
        freezer=None if unified_dir else _make_v1(v1.get("freezer"), group_name),
    )


def _make_v1(hierarchy: MountedHierarchy | None, group_name: str) -> str | None:
    return _make_group(os.path.join(hierarchy.own_group, group_name)) if hierarchy else None


def _make_v2(hierarchy: MountedHierarchy, group_name: str) -> str | None:
    """Below the daemon's own group, so that its limits hold for the jails too; else at the top."""
    own = hierarchy.own_group
    # A daemon that is started again by hand may still be in the leaf of its earlier life.
    if os.path.basename(own) == DAEMON_LEAF:
        own = os.path.dirname(own)
    wanted = _controllers(own, "cgroup.controllers") & set(_WANTED)
    # First the move, then the controllers: cpu and pids handed down while there are processes
    # would make the group a thread root, and every child of it "domain invalid".
    if wanted and _pids(own) and not _is_top_of_all(own):
        if _is_own_line(own):
            _move_into_leaf(own)
        elif {"memory", "pids"} <= wanted and _hands_down(hierarchy.mount_point, wanted):
            # Others live in our group: /sandbox-runner.* at the top, as container engines do it.
            own = hierarchy.mount_point
        else:
            wanted = set()
    _hand_down(own, wanted)
    _favour_daemon(own)
    directory = _make_group(os.path.join(own, group_name))
    if directory is not None:
        _hand_down(directory, wanted)
    return directory


def _favour_daemon(group: str) -> None:
    """Best effort, where it is in a leaf below `group`. A minimum holds from the top down."""
    leaf = os.path.join(group, DAEMON_LEAF)
    if not os.path.isdir(leaf):
        return
    for directory, name in ((group, "memory.min"), (leaf, "memory.min"), (leaf, "cpu.weight")):
        with (
            contextlib.suppress(OSError),
            open(os.path.join(directory, name), "w", encoding="ascii") as file,
        ):
            file.write(_DAEMONS_OWN[name])


def _make_group(path: str) -> str | None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        # Read-only or not delegated: this hierarchy cannot be had, and /health will say so.
        return None
    return path


def _controllers(group: str, file_name: str) -> set[str]:
    try:
        with open(os.path.join(group, file_name), encoding="ascii") as file:
            return set(file.read().split())
    except OSError:
        return set()


def _hands_down(group: str, wanted: set[str]) -> bool:
    return wanted <= _controllers(group, "cgroup.subtree_control")


def _hand_down(group: str, wanted: set[str]) -> bool:
    for name in sorted(wanted - _controllers(group, "cgroup.subtree_control")):
        # One at a time: one that is refused must not keep the others away.
        with (
            contextlib.suppress(OSError),
            open(os.path.join(group, "cgroup.subtree_control"), "w", encoding="ascii") as file,
        ):
            file.write(f"+{name}")
    return _hands_down(group, wanted)


def _is_top_of_all(group: str) -> bool:
    """The root of the whole hierarchy may hold processes; it alone has no cgroup.type."""
    return not os.path.exists(os.path.join(group, "cgroup.type"))


def _is_own_line(group: str) -> bool:
    """Whether every process directly in `group` is the daemon, above it, or below it."""
    pids = _pids(group)
    ours = set(_line_of(os.getpid()))
    return bool(pids) and all(pid in ours or os.getpid() in _line_of(pid) for pid in pids)


def _line_of(pid: int) -> list[int]:
    """A process and those above it."""
    line = []
    while pid > 0 and pid not in line:
        line.append(pid)
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name may hold anything; what follows its last bracket is state and parent.
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return line


def _pids(group: str) -> list[int]:
    try:
        with open(os.path.join(group, "cgroup.procs"), encoding="ascii") as file:
            return [int(line) for line in file]
    except OSError:
        return []


def _move_into_leaf(group: str) -> None:
    leaf = _make_group(os.path.join(group, DAEMON_LEAF))
    if leaf is None:
        return
    for pid in _pids(group):
        # One that has just ended is as well out of the group.
        with (
            contextlib.suppress(OSError),
            open(os.path.join(leaf, "cgroup.procs"), "w", encoding="ascii") as file,
        ):
            file.write(str(pid))
