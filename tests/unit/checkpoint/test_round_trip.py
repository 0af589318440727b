"""What comes out of a restore is what went into the save, on real files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from runner.checkpoint.limits import Limits
from runner.workspace.tree import Tree
from tests.unit.checkpoint.kit import (
    OWNER,
    facts,
    look,
    members_of,
    owners,
    primed,
    restored,
    saved,
)


@pytest.fixture
def workspace(fast_dir: Path) -> Path:
    """An empty workspace on tmpfs."""
    path = fast_dir / "workspace"
    path.mkdir(mode=0o750)
    return path


def came_back(workspace: Path) -> Path:
    """Saves, restores, and holds the one against the other."""
    staging = workspace.parent / "staging"
    restored(saved(workspace), staging)
    assert look(staging / "restored") == look(workspace)
    assert owners(staging / "restored") == {(OWNER.uid, OWNER.gid)}
    return staging / "restored"


def test_an_empty_workspace(workspace: Path) -> None:
    workspace.chmod(0o1711)
    os.utime(workspace, ns=(0, 1234567890_987654321))
    came_back(workspace)


def test_modes_and_times_of_files_and_directories(workspace: Path) -> None:
    for mode in (0o000, 0o200, 0o444, 0o640, 0o755, 0o777, 0o1644):
        (workspace / f"f{mode:o}").write_bytes(b"x")
        os.chmod(workspace / f"f{mode:o}", mode)
        (workspace / f"d{mode:o}").mkdir()
        (workspace / f"d{mode:o}/inside").write_bytes(b"y")
        os.utime(workspace / f"d{mode:o}/inside", ns=(0, mode))
        os.chmod(workspace / f"d{mode:o}", mode)
        os.utime(workspace / f"d{mode:o}", ns=(0, 10**18 + mode))
    came_back(workspace)


@pytest.mark.parametrize(
    "mtime_ns",
    [0, 1, 10**9, -1, -(10**9), -1_500_000_000, 999_999_999_999_999_999, 2**33 * 10**9 + 7, 10**19],
)
def test_times_to_the_nanosecond_before_1970_and_after_2242(workspace: Path, mtime_ns: int) -> None:
    (workspace / "file").touch()
    os.symlink("x", workspace / "symlink")
    for name in ("file", "symlink"):
        os.utime(workspace / name, ns=(0, mtime_ns), follow_symlinks=False)
    assert (workspace / "file").stat().st_mtime_ns == mtime_ns
    came_back(workspace)


def test_symlinks_are_data_wherever_they_lead(workspace: Path) -> None:
    for number, target in enumerate(
        (b"/etc/passwd", b"../../..", b"nowhere", b"loop", b".", b"\xff\n", b"x" * 4095, b"a//b/")
    ):
        os.symlink(target, os.fsencode(workspace) + b"/s%d" % number)
    os.symlink("loop", workspace / "loop")
    came_back(workspace)


def test_hard_links_stay_one_file(workspace: Path) -> None:
    (workspace / "b").mkdir()
    (workspace / "b/first").write_bytes(b"shared")
    os.chmod(workspace / "b/first", 0o600)
    os.link(workspace / "b/first", workspace / "a")
    os.link(workspace / "b/first", workspace / "b/second")
    os.link(workspace / "b/first", workspace / ("long" * 60))
    os.link(workspace / "b/first", os.fsencode(workspace) + b"/\xff")
    back = came_back(workspace)
    assert (back / "a").stat().st_nlink == 5


def test_names_of_any_bytes(workspace: Path) -> None:
    names = [bytes([byte]) for byte in range(1, 256) if byte not in b"./"]
    names += [b"\xc3\xa9t\xc3\xa9", b"a\nb", b" ", b"...", b"-rf", b"=", b"12 path=x\n", b"\\"]
    names += [b"n" * 255, b"\xff" * 255, b"runner-sidecar.json", b"PaxHeaders"]
    for name in names:
        Path(os.fsdecode(os.fsencode(workspace) + b"/" + name)).write_bytes(name)
    came_back(workspace)


def test_order_is_by_component_not_by_whole_name(workspace: Path) -> None:
    (workspace / "a").mkdir()
    for name in ("a/b", "a.txt", "a-", "a0"):
        (workspace / name).write_text(name)
    came_back(workspace)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 262143, 262144, 262145, 700_001])
def test_bodies_of_every_size(workspace: Path, size: int) -> None:
    (workspace / "before").write_bytes(b"x")
    (workspace / "file").write_bytes(os.urandom(size))
    (workspace / "then").write_bytes(b"y")
    came_back(workspace)


def test_headers_that_cross_the_edge_of_a_block(workspace: Path) -> None:
    # The root takes 1536 bytes: the next headers then begin at every 512 around the first edge.
    for shift in range(8):
        top = workspace / str(shift)
        top.mkdir()
        (top / "a").write_bytes(bytes((256 << 10) - 6 * 1536 + shift * 512))
        for name in ("b", "c", "d" * 200, "e"):
            (top / name).write_bytes(b"12345")
        came_back_of = workspace.parent / f"staging{shift}"
        restored(saved(top), came_back_of)
        assert look(came_back_of / "restored") == look(top)


def test_a_sparse_file_comes_back_as_its_bytes(workspace: Path) -> None:
    with (workspace / "sparse").open("wb") as file:
        file.seek(3 << 20)
        file.write(b"end")
    came_back(workspace)


def test_a_tree_deeper_than_path_max(workspace: Path) -> None:
    fd = os.open(workspace, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("dd", dir_fd=fd)
        below = os.open("dd", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    with open(os.open("bottom", os.O_WRONLY | os.O_CREAT, dir_fd=fd), "wb") as file:
        file.write(b"deep")
    os.close(fd)
    archive = saved(workspace)
    sidecar = restored(archive, workspace.parent / "staging")
    assert sidecar.archive.entries == 3002
    # Saving what came back gives the same bytes: every mode, time and name is there.
    assert members_of(saved(workspace.parent / "staging/restored")) == members_of(archive)
    for top in (workspace, workspace.parent / "staging"):
        with Tree.open(str(top)) as tree:
            tree.clear()  # Deeper than shutil can go.


def test_many_directories_side_by_side(workspace: Path) -> None:
    for outer in range(30):
        for inner in range(10):
            (workspace / f"{outer}/{inner}").mkdir(parents=True)
            (workspace / f"{outer}/{inner}/f").write_text(f"{outer}.{inner}")
    came_back(workspace)


def test_set_id_bits_do_not_travel(workspace: Path) -> None:
    (workspace / "tool").write_bytes(b"")
    os.chmod(workspace / "tool", 0o6755)
    back = came_back(workspace)
    assert stat.S_IMODE((back / "tool").stat().st_mode) == 0o755


def test_what_cannot_come_back_is_left_out_and_counted(workspace: Path, fast_dir: Path) -> None:
    os.mkfifo(workspace / "fifo")
    os.mknod(workspace / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    (workspace / "file").write_bytes(b"x")
    sidecar = restored(saved(workspace), fast_dir / "staging")
    assert (sidecar.omitted, sidecar.archive.entries) == (2, 2)
    assert os.listdir(fast_dir / "staging/restored") == ["file"]


def test_read_only_inputs_are_roots_again(workspace: Path, fast_dir: Path) -> None:
    (workspace / "in").mkdir()
    for name in ("in/given.csv", "edited.csv"):
        (workspace / name).write_bytes(b"1,2")
    os.symlink("/etc/passwd", workspace / "swapped")
    inputs = {
        "in/given.csv": primed(read_only=True),
        "edited.csv": primed(),
        "swapped": primed(read_only=True),
        "gone/away": primed(read_only=True),
        "edited.csv/below": primed(read_only=True),
    }
    mine = saved(workspace, facts(primed=inputs))
    passwd = os.stat("/etc/passwd")
    restored(mine, fast_dir / "staging")
    given = (fast_dir / "staging/restored/in/given.csv").stat()
    assert (given.st_uid, given.st_gid, stat.S_IMODE(given.st_mode)) == (0, 0, 0o444)
    assert (fast_dir / "staging/restored/edited.csv").stat().st_uid == OWNER.uid
    assert os.lstat(fast_dir / "staging/restored/swapped").st_uid == OWNER.uid
    assert os.stat("/etc/passwd") == passwd


def test_metadata_comes_back_with_paths_that_are_not_unicode(
    workspace: Path, fast_dir: Path
) -> None:
    inputs = {"é.csv": primed(), os.fsdecode(b"\xff/\xfe"): primed(), "a b": primed(read_only=True)}
    outputs = {os.fsdecode(b"out-\x80"): "cd" * 32, "plain": "ef" * 32}
    sidecar = restored(
        saved(workspace, facts(primed=inputs, surfaced=outputs)), fast_dir / "staging"
    )
    assert dict(sidecar.primed) == inputs
    assert dict(sidecar.surfaced) == outputs


def test_the_same_archive_can_be_restored_twice(workspace: Path, fast_dir: Path) -> None:
    (workspace / "file").write_bytes(b"x")
    archive = saved(workspace)
    restored(archive, fast_dir / "staging", name=b"one")
    restored(archive, fast_dir / "staging", name=b"two")
    assert look(fast_dir / "staging/one") == look(fast_dir / "staging/two") == look(workspace)


def test_an_archive_of_exactly_the_cap_is_taken(workspace: Path, fast_dir: Path) -> None:
    (workspace / "file").write_bytes(bytes(10_000))
    sidecar = restored(saved(workspace), fast_dir / "roomy")
    limits = Limits(expanded_bytes=sidecar.archive.bytes, entries=sidecar.archive.entries)
    restored(saved(workspace, limits=limits), fast_dir / "exact", limits=limits)
