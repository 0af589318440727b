"""The walk: order, bounds, depth, and a tree that changes meanwhile."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from runner.workspace.treewalk import OPEN_ANCESTORS, Kind, TooManyEntriesError
from tests.mounts import bound

UID = GID = 200000


def names(walk) -> list[bytes]:
    return [b"/".join(entry.parts) for entry in walk]


def test_entries_come_in_byte_order_with_directories_first(room) -> None:
    for path in ["b", "a.txt", "a/z", "a/b/c", "a-1", "é", "Z"]:
        full = room.data / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.touch()
    os.close(os.open(os.fsencode(room.data) + b"/\xff", os.O_CREAT))
    expected = [b"Z", b"a", b"a/b", b"a/b/c", b"a/z", b"a-1", b"a.txt", b"b"]
    assert names(room.workspace.walk()) == [*expected, "é".encode(), b"\xff"]


def test_each_entry_says_what_it_is_and_links_are_not_entered(room, tmp_path: Path) -> None:
    (tmp_path / "inside").touch()
    (room.data / "dir").mkdir()
    (room.data / "file").write_bytes(b"abc")
    (room.data / "link").symlink_to(tmp_path)
    os.mkfifo(room.data / "pipe")
    found = {}
    for entry in room.workspace.walk():
        found[entry.name] = (entry.kind, entry.depth)
        if entry.kind is Kind.FILE:
            fd = entry.open()
            assert os.read(fd, 9) == b"abc" and entry.stat.st_size == 3
            os.close(fd)
        if entry.kind is Kind.SYMLINK:
            assert entry.readlink() == os.fsencode(tmp_path)
    assert found == {
        b"dir": (Kind.DIRECTORY, 1),
        b"file": (Kind.FILE, 1),
        b"link": (Kind.SYMLINK, 1),
        b"pipe": (Kind.OTHER, 1),
    }


def test_a_tree_of_thousands_of_levels_needs_few_descriptors(room) -> None:
    levels = 3_000
    current = room.workspace.subtree(())
    for _ in range(levels):
        os.close(current.create((b"z",)))
        following = current.make_dir((b"d",), uid=UID, gid=GID)
        current.close()
        current = following
    current.close()
    # What other tests of this process hold is not the walk's.
    before = most = len(os.listdir("/proc/self/fd"))
    count = 0
    for entry in room.workspace.walk():
        count += 1
        if entry.depth % 100 == 0:
            most = max(most, len(os.listdir("/proc/self/fd")))
    # On the way up as well: each `z` comes after the whole tree below its neighbour `d`.
    assert count == 2 * levels
    assert most - before < OPEN_ANCESTORS + 60


def test_directories_at_the_greatest_depth_are_shown_but_not_entered(room) -> None:
    (room.data / "a/b/c").mkdir(parents=True)
    assert names(room.workspace.walk(max_depth=2)) == [b"a", b"a/b"]


def test_too_many_entries_are_told_and_the_smallest_names_are_kept(room) -> None:
    for number in range(100):
        (room.data / f"{number:03}").touch()
    seen = []
    with pytest.raises(TooManyEntriesError):
        for entry in room.workspace.walk(max_entries=10):
            seen.append(entry.name)
    assert seen == [b"%03d" % number for number in range(10)]
    assert len(list(room.workspace.walk(max_entries=100))) == 100


def test_a_huge_directory_does_not_take_memory_past_the_bound(room) -> None:
    for number in range(30_000):
        os.close(room.workspace.create((b"%06d" % number,)))
    tracemalloc.start()
    try:
        with pytest.raises(TooManyEntriesError):
            for _ in room.workspace.walk(max_entries=100):
                pass
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()


def test_what_vanishes_during_the_walk_is_left_out(room) -> None:
    for path in ["a/1", "a/2", "b/1", "c"]:
        full = room.data / path
        full.parent.mkdir(exist_ok=True)
        full.touch()
    seen = []
    for entry in room.workspace.walk():
        seen.append(b"/".join(entry.parts))
        if entry.parts == (b"a", b"1"):
            (room.data / "a/2").unlink()
            (room.data / "b/1").unlink()
            (room.data / "b").rmdir()
    assert seen == [b"a", b"a/1", b"c"]


def test_a_directory_swapped_for_a_link_during_the_walk_is_not_entered(
    room, tmp_path: Path
) -> None:
    (tmp_path / "secret").touch()
    (room.data / "a").mkdir()
    (room.data / "a/f").touch()
    seen = []
    for entry in room.workspace.walk():
        seen.append(b"/".join(entry.parts))
        if entry.parts == (b"a",):
            (room.data / "a").rename(room.data / "z")
            (room.data / "a").symlink_to(tmp_path)
    assert seen == [b"a"]


def test_ancestors_moved_away_during_the_walk_lead_nowhere_else(room, tmp_path: Path) -> None:
    """Deep enough that the way up has to be found again, after it was moved and replaced."""
    deep = room.data
    for _ in range(OPEN_ANCESTORS + 20):
        deep = deep / "d"
        deep.mkdir()
        (deep / "z").touch()
    (tmp_path / "z").touch()
    outside = set()
    for entry in room.workspace.walk():
        if entry.depth == OPEN_ANCESTORS + 20 and entry.name == b"d":
            (room.data / "d/d/d").rename(room.data / "moved")
            (room.data / "d/d/d").symlink_to(tmp_path)
        outside.add(entry.stat.st_dev)
    assert outside == {room.data.stat().st_dev}


def test_the_way_up_is_found_after_the_way_down_was_moved(room) -> None:
    levels = OPEN_ANCESTORS + 20
    deep = room.data
    for _ in range(levels):
        deep = deep / "d"
        deep.mkdir()
        (deep / "z").touch()
    inodes = {path.stat().st_ino for path in room.data.rglob("z")}
    seen = set()
    for entry in room.workspace.walk():
        if entry.name == b"z":
            seen.add(entry.stat.st_ino)
        # A directory whose parent's descriptor was closed long ago: its `..` is the root now.
        if entry.depth == levels and entry.name == b"d":
            (room.data / "/".join("d" * 10)).rename(room.data / "moved")
    assert seen == inodes


def test_a_mount_point_is_told_and_not_entered(room) -> None:
    (room.root / "other").mkdir()
    (room.root / "other/kept").touch()
    with bound(room.root / "other", room.data / "m"):
        kinds = [(entry.parts, entry.kind) for entry in room.workspace.walk()]
    assert kinds == [((b"m",), Kind.DIRECTORY), ((b"m",), Kind.UNLISTED)]


def test_twenty_thousand_files_are_walked(room) -> None:
    for number in range(20_000):
        if number % 500 == 0:
            directory = room.workspace.ensure_dirs((b"%03d" % (number // 500),), uid=UID, gid=GID)
        os.close(directory.create((b"%05d" % number,)))
        if number % 500 == 499:
            directory.close()
    walked = [entry.parts for entry in room.workspace.walk()]
    assert len(walked) == 20_040 and walked == sorted(walked)
