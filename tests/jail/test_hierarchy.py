"""Where cgroups are found: v1, v2, hybrid, and inside containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jail import hierarchy
from jail.cgroup import Cgroups, group_name
from jail.facts import Enforcement
from jail.hierarchy import MountedHierarchy, Parents, make_parents, parse_mounted
from jail.profile import Limits

HYBRID_MOUNTS = """\
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw
"""
HYBRID_OWN = "9:name=systemd:/\n4:memory:/tools/abc\n2:cpu,cpuacct:/\n0::/sub\n"


def test_each_hierarchy_is_paired_with_the_daemons_group() -> None:
    found = {h.mount_point: h for h in parse_mounted(HYBRID_MOUNTS, HYBRID_OWN)}
    assert found["/sys/fs/cgroup/memory"].own_group == "/sys/fs/cgroup/memory/tools/abc"
    assert found["/sys/fs/cgroup/cpu,cpuacct"].controllers == {"cpu", "cpuacct"}
    unified = found["/sys/fs/cgroup/unified"]
    assert unified.is_v2 and unified.own_group == "/sys/fs/cgroup/unified/sub"


@pytest.mark.parametrize(
    ("root", "own", "expected"),
    [
        # A container without a cgroup namespace sees the host's path, and its own subtree mounted.
        ("/docker/abc", "/docker/abc", "/sys/fs/cgroup"),
        ("/docker/abc", "/docker/abc/child", "/sys/fs/cgroup/child"),
        # With one, both are relative to it.
        ("/", "/", "/sys/fs/cgroup"),
        ("/", "/system.slice/x.service", "/sys/fs/cgroup/system.slice/x.service"),
        # Outside of the namespace or of the mount: the top of what is mounted.
        ("/", "/../../elsewhere", "/sys/fs/cgroup"),
        ("/docker/abc", "/docker/abcdef", "/sys/fs/cgroup"),
    ],
)
def test_the_own_group_is_found_through_any_mount(root: str, own: str, expected: str) -> None:
    mounts = f"30 25 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    (found,) = parse_mounted(mounts, f"0::{own}\n")
    assert found.own_group == expected


def test_a_mount_point_with_a_space_is_read() -> None:
    mounts = "30 25 0:26 / /mnt/my\\040groups rw - cgroup2 cgroup2 rw\n"
    (found,) = parse_mounted(mounts, "0::/\n")
    assert found.mount_point == "/mnt/my groups"


def test_nothing_mounted_is_nothing_found() -> None:
    assert parse_mounted("22 27 0:21 / /proc rw - proc proc rw\nbroken\n", "0::/\n") == ()
    assert make_parents((), "x") == Parents()


def fake_v2(path: Path, *, available: str, handed_down: str) -> MountedHierarchy:
    """A directory with the two files that say what a v2 group can hand down."""
    path.mkdir(exist_ok=True)
    (path / "cgroup.controllers").write_text(available)
    (path / "cgroup.subtree_control").write_text(handed_down)
    return MountedHierarchy(str(path), str(path), frozenset(), True)


def test_a_v2_without_controllers_is_still_good_for_a_kill(tmp_path: Path) -> None:
    unified = fake_v2(tmp_path / "unified", available="", handed_down="")
    (tmp_path / "memory").mkdir()
    memory = MountedHierarchy(
        str(tmp_path / "memory"), str(tmp_path / "memory"), frozenset({"memory"}), False
    )
    parents = make_parents((unified, memory), "ours")
    assert parents == Parents(
        memory=str(tmp_path / "memory/ours"), unified=str(tmp_path / "unified/ours")
    )
    assert parents.directories == (str(tmp_path / "unified/ours"), str(tmp_path / "memory/ours"))


def test_a_read_only_hierarchy_is_none(tmp_path: Path) -> None:
    # A path that cannot be made stands for a file system that is mounted read-only.
    long = str(tmp_path / ("x" * 300))
    memory = MountedHierarchy(long, long, frozenset({"memory"}), False)
    assert make_parents((memory,), "ours") == Parents()


def test_only_our_own_line_of_processes_may_be_moved(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    procs = group / "cgroup.procs"
    procs.write_text(f"{os.getpid()}\n{os.getppid()}\n")
    assert hierarchy._is_own_line(str(group))
    stranger = next(
        int(entry.name)
        for entry in os.scandir("/proc")
        if entry.name.isdigit()
        and os.getpid() not in hierarchy._line_of(int(entry.name))
        and int(entry.name) not in hierarchy._line_of(os.getpid())
    )
    procs.write_text(f"{os.getpid()}\n{stranger}\n")
    assert not hierarchy._is_own_line(str(group))
    procs.write_text("")
    assert not hierarchy._is_own_line(str(group))


def test_an_owner_has_one_name_and_no_other_has_it() -> None:
    assert group_name("/var/lib/a") == group_name("/var/lib/a") != group_name("/var/lib/b")


def test_without_any_hierarchy_limits_are_advisory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jail.cgroup.read_mounted", lambda: ())
    assert Cgroups.open("nobody").enforcement is Enforcement.ADVISORY
    limits = Limits(wall_ms=1, cpu_ms=1, memory_bytes=1 << 20, pids=1, output_bytes=1)
    empty = Cgroups(Parents(), Enforcement.ADVISORY).create(limits)
    assert empty.is_empty() and empty.counters().memory_peak_bytes is None and not empty.kill()
    assert empty.remove()
