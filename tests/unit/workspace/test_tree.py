"""What `Tree` makes, moves and opens, and what it refuses to follow."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from runner.workspace.tree import NotRegularError, Tree

UID = GID = 200000

pytestmark = pytest.mark.usefixtures("both_descents")


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def put(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_every_directory_made_belongs_to_the_owner_given(room) -> None:
    before = os.umask(0o077)
    try:
        made = room.workspace.ensure_dirs((b"a", b"b", b"c"), uid=UID, gid=GID, mode=0o755)
    finally:
        os.umask(before)
    with made:
        assert made.stat().st_ino == (room.data / "a/b/c").stat().st_ino
    for path in ("a", "a/b", "a/b/c"):
        assert owner_and_mode(room.data / path) == (UID, GID, 0o755)


def test_a_directory_that_was_there_keeps_its_owner(room) -> None:
    (room.data / "a").mkdir(mode=0o700)
    os.chown(room.data / "a", 1234, 1234)
    room.workspace.ensure_dirs((b"a", b"b"), uid=UID, gid=GID).close()
    assert owner_and_mode(room.data / "a") == (1234, 1234, 0o700)
    assert owner_and_mode(room.data / "a/b")[:2] == (UID, GID)


@pytest.mark.parametrize("squatter", ["symlink", "dangling", "file", "fifo", "socket"])
def test_what_squats_a_parent_directory_is_replaced(room, tmp_path: Path, squatter: str) -> None:
    place = room.data / "a"
    outside = put(tmp_path / "outside" / "kept").parent
    if squatter == "symlink":
        place.symlink_to(outside)
    elif squatter == "dangling":
        place.symlink_to(tmp_path / "nowhere")
    elif squatter == "file":
        place.write_bytes(b"")
    elif squatter == "fifo":
        os.mkfifo(place)
    else:
        socket.socket(socket.AF_UNIX).bind(str(place))
    room.workspace.ensure_dirs((b"a", b"b"), uid=UID, gid=GID).close()
    assert (room.data / "a/b").is_dir() and not place.is_symlink()
    assert os.listdir(outside) == ["kept"] and not (tmp_path / "nowhere").exists()


def test_a_symlinked_parent_is_never_followed(room, tmp_path: Path) -> None:
    secret = put(tmp_path / "secret")
    (room.data / "a").symlink_to(tmp_path)
    parts = (b"a", b"secret")
    tree: Tree = room.workspace
    operations = {
        "open_file": lambda: tree.open_file(parts),
        "create": lambda: tree.create((b"a", b"new")),
        "stat": lambda: tree.stat(parts),
        "chown": lambda: tree.chown(parts, UID, GID),
        "chmod": lambda: tree.chmod(parts, 0o777),
        "set_mtime": lambda: tree.set_mtime(parts, 1),
        "remove": lambda: tree.remove(parts),
        "subtree": lambda: tree.subtree((b"a",)),
        "make_dir": lambda: tree.make_dir((b"a", b"new"), uid=UID, gid=GID),
        "symlink": lambda: tree.symlink(b"t", (b"a", b"new"), uid=UID, gid=GID),
        "link": lambda: tree.link(parts, (b"stolen",)),
        "move": lambda: tree.move(parts, tree, (b"stolen",)),
        "exchange": lambda: tree.exchange(parts, tree, (b"a",)),
        "fsync": lambda: tree.fsync(parts),
    }
    before = secret.stat()
    for name, operation in operations.items():
        with pytest.raises(OSError) as caught:
            operation()
        assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR), name
    assert secret.stat() == before and os.listdir(tmp_path) == ["secret"]
    assert os.listdir(room.data) == ["a"]


@pytest.mark.parametrize("parts", [(b"l", b"f"), (b"l", b"e", b"f"), (b"d", b"m", b"f")])
def test_a_link_that_stays_in_the_workspace_is_not_followed_either(room, parts) -> None:
    put(room.data / "d/f")
    put(room.data / "d/e/f")
    (room.data / "l").symlink_to("d")
    (room.data / "d/m").symlink_to("e")
    with pytest.raises(OSError) as caught:
        room.workspace.open_file(parts)
    assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)


@pytest.mark.parametrize("kind", ["symlink", "fifo", "socket", "directory", "device"])
def test_only_a_regular_file_is_opened_and_nothing_blocks(room, tmp_path: Path, kind: str) -> None:
    path = room.data / "f"
    if kind == "symlink":
        path.symlink_to(put(tmp_path / "secret"))
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    else:
        path.mkdir()
    with pytest.raises(NotRegularError):
        room.workspace.open_file((b"f",))


@pytest.mark.parametrize("part", [b"..", b".", b"", b"a/b", b"a\x00b"])
def test_a_component_that_is_not_plain_is_refused(room, part: bytes) -> None:
    for parts in [(part,), (b"a", part), (part, b"a")]:
        with pytest.raises(ValueError, match="not plain"):
            room.workspace.stat(parts)


def test_a_file_that_could_not_be_written_whole_is_removed(room) -> None:
    def chunks():
        yield b"first"
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError):
        room.workspace.write_file((b"f",), chunks(), uid=UID, gid=GID, mode=0o644)
    assert os.listdir(room.data) == []


def test_a_new_file_never_replaces_or_follows(room, tmp_path: Path) -> None:
    (room.data / "f").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        room.workspace.write_file((b"f",), [b"x"], uid=UID, gid=GID, mode=0o644)
    assert not (tmp_path / "nowhere").exists()


def test_a_file_gets_its_owner_and_mode(room) -> None:
    status = room.workspace.write_file((b"f",), [b"a", b"", b"bc"], uid=UID, gid=GID, mode=0o640)
    assert owner_and_mode(room.data / "f") == (UID, GID, 0o640)
    assert (status.st_size, (room.data / "f").read_bytes()) == (3, b"abc")


@pytest.mark.parametrize("squatter", ["nothing", "file", "symlink", "empty directory", "directory"])
def test_a_move_replaces_whatever_stands_there(room, tmp_path: Path, squatter: str) -> None:
    outside = put(tmp_path / "kept", b"kept")
    target = room.data / "f"
    if squatter == "file":
        put(target, b"old")
    elif squatter == "symlink":
        target.symlink_to(outside)
    elif squatter == "empty directory":
        target.mkdir()
    elif squatter == "directory":
        put(target / "deep/er/x")
    put(room.root / "staging/new", b"new")
    room.staging.move((b"new",), room.workspace, (b"f",))
    assert not target.is_symlink() and target.read_bytes() == b"new"
    assert os.listdir(room.root / "staging") == [] and outside.read_bytes() == b"kept"


def test_a_directory_moves_over_a_file_and_over_a_full_directory(room) -> None:
    for number, squatter in enumerate(["file", "full"]):
        target = room.data / squatter
        put(target if squatter == "file" else target / "old")
        put(room.root / f"staging/{number}/new")
        room.staging.move((b"%d" % number,), room.workspace, (squatter.encode(),))
        assert os.listdir(target) == ["new"]
    assert os.listdir(room.root / "staging") == []


def test_exchange_and_move_new_do_what_they_say(room) -> None:
    put(room.root / "staging/a/new")
    put(room.data / "b/old")
    room.staging.exchange((b"a",), room.workspace, (b"b",))
    assert os.listdir(room.data / "b") == ["new"]
    assert os.listdir(room.root / "staging/a") == ["old"]
    with pytest.raises(FileExistsError):
        room.staging.move_new((b"a",), room.workspace, (b"b",))
    room.staging.move_new((b"a",), room.workspace, (b"c",))
    assert os.listdir(room.data / "c") == ["old"]


def test_links_are_made_and_read_but_their_targets_left_alone(room, tmp_path: Path) -> None:
    secret = put(tmp_path / "secret")
    target = str(secret).encode()
    tree: Tree = room.workspace
    tree.symlink(target, (b"s",), uid=UID, gid=GID)
    tree.link((b"s",), (b"t",))
    tree.set_mtime((b"s",), 1_000_000_000)
    tree.chown((b"s",), 7, 7)
    assert tree.readlink((b"t",)) == target and (room.data / "t").is_symlink()
    assert tree.stat((b"t",)).st_mtime_ns == 1_000_000_000
    assert owner_and_mode(room.data / "s")[:2] == (7, 7) and secret.stat().st_uid == 0
    with pytest.raises(OSError, match="symbolic") as caught:
        tree.chmod((b"s",), 0o777)
    assert caught.value.errno == errno.ELOOP


def test_metadata_is_set_and_synced(room) -> None:
    put(room.data / "d/f")
    tree: Tree = room.workspace
    tree.chmod((b"d",), 0o750)
    tree.chmod((b"d", b"f"), 0o600)
    tree.chown((b"d", b"f"), UID, GID)
    tree.give_root(uid=UID, gid=GID, mode=0o711)
    for step in (
        tree.sync,
        tree.fsync,
        lambda: tree.fsync((b"d",)),
        lambda: tree.fsync((b"d", b"f")),
    ):
        step()
    assert owner_and_mode(room.data / "d")[2] == 0o750
    assert owner_and_mode(room.data / "d/f") == (UID, GID, 0o600)
    assert owner_and_mode(room.data) == (UID, GID, 0o711)
    assert tree.space().f_bfree > 0


def test_a_path_longer_than_the_kernel_takes_is_opened(room) -> None:
    parts = tuple(b"n%03d" % number + b"x" * 200 for number in range(60))
    with room.workspace.ensure_dirs(parts, uid=UID, gid=GID) as made:
        made.write_file((b"f",), [b"deep"], uid=UID, gid=GID, mode=0o644)
    fd = room.workspace.open_file((*parts, b"f"))
    assert os.read(fd, 10) == b"deep"
    os.close(fd)


def test_no_descriptor_is_left_open(room, tmp_path: Path) -> None:
    (room.data / "link").symlink_to(tmp_path)
    put(room.data / "a/b/f")
    before = os.listdir("/proc/self/fd")
    room.workspace.ensure_dirs((b"a", b"c", b"d"), uid=UID, gid=GID).close()
    room.workspace.subtree((b"a", b"b")).close()
    for failing in ((b"link", b"x"), (b"a", b"b", b"f", b"x"), (b"a", b"none", b"x")):
        with pytest.raises(OSError):
            room.workspace.open_file(failing)
    walk = room.workspace.walk()
    next(walk)
    walk.close()
    list(room.workspace.walk())
    room.workspace.clear()
    assert os.listdir("/proc/self/fd") == before
