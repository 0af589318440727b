"""Removing: any depth, width, permission and flag; never a mount point, never outside."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from pathlib import Path

import pytest

from runner.workspace import removal
from runner.workspace.tree import Tree
from tests.mounts import bound, ext4

UID = GID = 200000


def make_deep(tree: Tree, levels: int, *, mode: int = 0o755) -> None:
    current = tree.subtree(())
    for _ in range(levels):
        following = current.make_dir((b"d" * 50,), uid=UID, gid=GID, mode=mode)
        os.close(current.create((b"f",)))
        current.close()
        current = following
    current.close()


def test_ten_thousand_levels_without_permissions_are_removed(room) -> None:
    make_deep(room.workspace, 10_000, mode=0)
    room.workspace.remove((b"d" * 50,))
    assert os.listdir(room.data) == ["f"]


def test_clear_keeps_the_root_and_takes_everything_else(room, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    (room.data / "link").symlink_to(outside)
    os.mkfifo(room.data / "fifo")
    (room.data / "a/b/c").mkdir(parents=True)
    (room.data / "a/b/link").symlink_to(outside)
    (room.data / "a/b/x").write_bytes(b"x")
    (room.data / "bad\udcff").write_bytes(b"x")
    before = room.data.stat().st_ino
    room.workspace.clear()
    assert os.listdir(room.data) == [] and room.data.stat().st_ino == before
    assert os.listdir(outside) == ["kept"]


def test_a_removed_link_takes_nothing_of_its_target_with_it(room, tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"kept")
    (room.data / "link").symlink_to(tmp_path)
    room.workspace.remove((b"link",))
    assert os.listdir(room.data) == [] and os.listdir(tmp_path) == ["kept"]


@pytest.mark.parametrize("parts", [(b"none",), (b"none", b"below")])
def test_what_is_not_there_is_no_error(room, parts: tuple[bytes, ...]) -> None:
    room.workspace.remove(parts)


def test_wide_trees_are_removed(room) -> None:
    for directory in range(300):
        base = room.data / f"d{directory}"
        (base / "e/f").mkdir(parents=True)
        for number in range(10):
            (base / f"e/{number}").touch()
    room.workspace.clear()
    assert os.listdir(room.data) == []


@pytest.mark.parametrize("flag", [0x10, 0x20], ids=["immutable", "append-only"])
def test_chattr_flags_are_cleared(room, flag: int) -> None:
    (room.data / "a/b").mkdir(parents=True)
    (room.data / "a/b/f").write_bytes(b"x")
    for path in ("a/b/f", "a/b", "a"):
        fd = os.open(room.data / path, os.O_RDONLY)
        fcntl.ioctl(fd, 0x40086602, struct.pack("q", flag))  # FS_IOC_SETFLAGS
        os.close(fd)
    with pytest.raises(PermissionError):
        (room.data / "a/b/f").unlink()
    room.workspace.clear()
    assert os.listdir(room.data) == []


@pytest.mark.parametrize("place", ["mounted", "a/mounted"])
def test_a_mount_point_in_the_tree_is_not_entered(room, place: str) -> None:
    other = room.root / "other"
    other.mkdir()
    (other / "kept").write_bytes(b"kept")
    with bound(other, room.data / place):
        with pytest.raises(OSError):
            room.workspace.clear()
        assert (other / "kept").read_bytes() == b"kept"


def test_a_full_disk_can_be_emptied(tmp_path: Path) -> None:
    disk = ext4(tmp_path / "mounted", size=4 << 20, inodes=4000)
    with disk as mounted, Tree.open(str(mounted)) as tree:
        for outer in range(20):
            (mounted / f"{outer}/m").mkdir(parents=True)
            for inner in range(100):
                (mounted / f"{outer}/m/{inner:0200d}").mkdir()
        with pytest.raises(OSError, match="space"):
            (mounted / "fill").write_bytes(bytes(8 << 20))
        tree.clear()
        assert os.listdir(mounted) == []


def test_no_room_for_a_name_at_the_top_does_not_stop_it(room, monkeypatch) -> None:
    (room.data / "a/b/c/d").mkdir(parents=True)
    (room.data / "a/b/c/d/f").touch()
    (room.data / "a/b2/c").mkdir(parents=True)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(removal.os, "rename", full)
    room.workspace.clear()
    assert os.listdir(room.data) == []


def test_a_tree_that_is_filled_without_end_is_given_up(room, monkeypatch) -> None:
    (room.data / "d").mkdir()
    real = os.rmdir

    def too_late(name: bytes, *, dir_fd: int) -> None:
        fd = os.open(name, os.O_RDONLY, dir_fd=dir_fd)
        os.close(os.open("again", os.O_CREAT, dir_fd=fd))
        os.close(fd)
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(removal.os, "rmdir", too_late)
    with pytest.raises(OSError, match="filled"):
        removal.clear(room.workspace.fileno(), seconds=0.1)
    with pytest.raises(OSError, match="filled"):
        removal.remove(room.workspace.fileno(), b"d", seconds=0.1)
    monkeypatch.undo()


def test_the_shell_tools_fail_where_ours_does_not(room) -> None:
    """The control of the first test: a remover that recurses or builds paths gives up there."""
    make_deep(room.workspace, 2_000)
    with pytest.raises((OSError, RecursionError)):
        shutil.rmtree(room.data / ("d" * 50))
