"""Inputs on the disk: staged whole, then placed, owned by whom they should be."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.errors import InputUnavailable, InsufficientStorage
from runner.workspace.fingerprint import HashCache
from runner.workspace.paths import SafePath
from runner.workspace.placing import place, stage, survey
from runner.workspace.priming import Action, Inline, Input, Staged, Stored, plan
from runner.workspace.stopping import Stop, Stopped
from runner.workspace.tree import Tree
from tests.mounts import tmpfs

UID = GID = 200000


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def inline(name: str, content: bytes = b"x", *, read_only: bool = False) -> Input:
    return Input(SafePath.parse(name), Inline(content), read_only, f"id-{name}")


class Primer:
    """A session's priming, request after request."""

    def __init__(self, room) -> None:
        self.room = room
        self.primed = {}
        self.cache = HashCache()

    def __call__(self, *inputs: Input):
        workspace = self.room.workspace
        steps = plan(inputs, self.primed, survey(workspace, inputs, self.primed, self.cache))
        with stage(self.room.staging, steps, uid=UID, gid=GID) as staged:
            staged.release()
            placed = place(workspace, staged, self.primed, uid=UID, gid=GID)
        self.primed = dict(placed.primed)
        assert os.listdir(self.room.root / "staging") == []
        return placed


@pytest.fixture
def prime(room) -> Primer:
    return Primer(room)


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def test_everything_made_belongs_to_the_session_and_read_only_to_root(room, prime) -> None:
    before = os.umask(0o077)
    try:
        placed = prime(inline("a/b/f"), inline("c/ro", read_only=True), inline("g"))
    finally:
        os.umask(before)
    assert placed.written == ("a/b/f", "c/ro", "g") and placed.kept == ()
    for path in ("a", "a/b", "c"):
        assert owner_and_mode(room.data / path) == (UID, GID, 0o755)
    for path in ("a/b/f", "g"):
        assert owner_and_mode(room.data / path) == (UID, GID, 0o644)
    assert owner_and_mode(room.data / "c/ro") == (0, 0, 0o444)


def test_an_unchanged_input_is_not_written_again(room, prime) -> None:
    prime(inline("f"), inline("ro", read_only=True))
    before = [(room.data / name).lstat() for name in ("f", "ro")]
    placed = prime(inline("f"), inline("ro", read_only=True))
    assert placed.kept == ("f", "ro") and placed.written == ()
    assert [(room.data / name).lstat() for name in ("f", "ro")] == before


def test_an_edit_survives_the_same_original_but_not_a_new_one(room, prime) -> None:
    prime(inline("f", b"one"))
    (room.data / "f").write_bytes(b"edited")
    assert prime(inline("f", b"one")).kept == ("f",)
    assert (room.data / "f").read_bytes() == b"edited"
    assert prime(inline("f", b"two")).written == ("f",)
    assert (room.data / "f").read_bytes() == b"two"


def test_an_output_sent_back_is_taken_over_without_a_write(room, prime) -> None:
    (room.data / "out").write_bytes(b"result")
    before = (room.data / "out").lstat()
    assert prime(inline("out", b"result")).kept == ("out",)
    assert (room.data / "out").lstat() == before and prime.primed["out"].sha256 == sha(b"result")


def tampered_mode(path: Path, _: Path) -> None:
    path.chmod(0o666)


def tampered_owner(path: Path, _: Path) -> None:
    os.chown(path, UID, GID)


def tampered_content(path: Path, _: Path) -> None:
    path.write_bytes(b"changed!")


def removed(path: Path, _: Path) -> None:
    path.unlink()


def replaced_by_file(path: Path, _: Path) -> None:
    path.unlink()
    path.write_bytes(b"original")


def replaced_by_link(path: Path, outside: Path) -> None:
    path.unlink()
    path.symlink_to(outside / "kept")


def replaced_by_directory(path: Path, _: Path) -> None:
    path.unlink()
    (path / "x/y").mkdir(parents=True)


def replaced_by_fifo(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def parent_replaced_by_link(path: Path, outside: Path) -> None:
    path.parent.rename(path.parent.with_name("away"))
    path.parent.symlink_to(outside)


def parent_replaced_by_file(path: Path, _: Path) -> None:
    path.parent.rename(path.parent.with_name("away"))
    path.parent.write_bytes(b"")


TAMPERINGS = [
    tampered_mode,
    tampered_owner,
    tampered_content,
    removed,
    replaced_by_file,
    replaced_by_link,
    replaced_by_directory,
    replaced_by_fifo,
    parent_replaced_by_link,
    parent_replaced_by_file,
]


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory that must be untouched whatever links lead to it."""
    (tmp_path / "kept").write_bytes(b"kept")
    before = [(tmp_path / "kept").stat().st_ctime_ns, tmp_path.stat().st_ctime_ns]
    yield tmp_path
    assert [(tmp_path / "kept").stat().st_ctime_ns, tmp_path.stat().st_ctime_ns] == before


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_a_read_only_input_is_always_put_back(room, prime, outside: Path, tamper) -> None:
    wanted = inline("d/ro", b"original", read_only=True)
    prime(wanted)
    tamper(room.data / "d/ro", outside)
    assert prime(wanted).written == ("d/ro",)
    assert not (room.data / "d").is_symlink()
    assert owner_and_mode(room.data / "d/ro") == (0, 0, 0o444)
    assert (room.data / "d/ro").read_bytes() == b"original"


def test_two_read_only_inputs_that_were_swapped_are_put_back(room, prime) -> None:
    wanted = [inline("a", b"aa", read_only=True), inline("b", b"bb", read_only=True)]
    prime(*wanted)
    (room.data / "a").rename(room.data / "t")
    (room.data / "b").rename(room.data / "a")
    (room.data / "t").rename(room.data / "b")
    assert prime(*wanted).written == ("a", "b")
    assert (room.data / "a").read_bytes() == b"aa"


@pytest.mark.parametrize("tamper", [each for each in TAMPERINGS if "replaced" in each.__name__])
def test_what_squats_a_destination_is_removed_never_followed(
    room, prime, outside: Path, tamper
) -> None:
    prime(inline("d/f", b"original"))
    tamper(room.data / "d/f", outside)
    prime(inline("d/f", b"new"))
    assert not (room.data / "d/f").is_symlink()
    assert owner_and_mode(room.data / "d/f") == (UID, GID, 0o644)
    assert (room.data / "d/f").read_bytes() == b"new"


def test_a_primed_file_gives_way_to_a_directory_and_back(room, prime) -> None:
    prime(inline("a"))
    assert prime(inline("a/b")).primed.keys() == {"a/b"}
    assert prime(inline("a")).primed.keys() == {"a"}
    assert (room.data / "a").is_file()


def test_a_fetched_file_is_moved_and_a_stored_one_copied(room, prime) -> None:
    (room.root / "staging/fetched").write_bytes(b"fetched")
    store = room.top.make_dir((b"inputs",), uid=0, gid=0, mode=0o700)
    store.write_file((b"key",), [b"stored"], uid=0, gid=0, mode=0o600)
    prime(
        Input(SafePath.parse("f"), Staged((b"fetched",), sha(b"fetched"), 7)),
        Input(SafePath.parse("s"), Stored(store, (b"key",), sha(b"stored"), 6)),
        Input(SafePath.parse("ro"), Stored(store, (b"key",), sha(b"stored"), 6), read_only=True),
    )
    store.close()
    assert (room.data / "f").read_bytes() == b"fetched"
    assert owner_and_mode(room.data / "f") == (UID, GID, 0o644)
    assert owner_and_mode(room.data / "ro") == (0, 0, 0o444)
    # The program may write to its copy: the cache must not be behind it.
    assert (room.data / "s").stat().st_nlink == (room.data / "ro").stat().st_nlink == 1
    (room.data / "s").write_bytes(b"changed")
    assert (room.root / "inputs/key").read_bytes() == b"stored"


@pytest.mark.parametrize("fault", ["gone", "damaged", "link", "never staged"])
def test_an_input_that_is_not_there_leaves_everything_as_it_was(room, fault: str) -> None:
    store = room.top.make_dir((b"inputs",), uid=0, gid=0, mode=0o700)
    if fault == "damaged":
        store.write_file((b"key",), [b"stoled"], uid=0, gid=0, mode=0o600)
    if fault == "link":
        store.symlink(b"/etc/passwd", (b"key",), uid=0, gid=0)
    source = Stored(store, (b"key",), sha(b"stored"), 6)
    if fault == "never staged":
        source = Staged((b"none",), sha(b"stored"), 6)
    steps = plan([inline("first"), Input(SafePath.parse("s"), source)], {}, {})
    with pytest.raises(InputUnavailable) as caught:
        stage(room.staging, steps, uid=UID, gid=GID)
    store.close()
    assert caught.value.field == "s"
    assert os.listdir(room.data) == os.listdir(room.root / "staging") == []


def test_staging_that_is_told_to_stop_leaves_everything_as_it_was(room) -> None:
    stop = Stop()
    stop.ask()
    with room.top.make_dir((b"inputs",), uid=0, gid=0, mode=0o700) as store:
        store.write_file((b"key",), [b"stored"], uid=0, gid=0, mode=0o600)
        source = Stored(store, (b"key",), sha(b"stored"), 6)
        steps = plan([inline("first"), Input(SafePath.parse("s"), source)], {}, {})
        with pytest.raises(Stopped):
            stage(room.staging, steps, uid=UID, gid=GID, stop=stop)
    assert os.listdir(room.data) == os.listdir(room.root / "staging") == []


def test_a_full_disk_is_told_and_the_workspace_untouched(tmp_path: Path) -> None:
    with tmpfs(tmp_path, size=1 << 20), Tree.open(str(tmp_path)) as top:
        workspace = top.make_dir((b"workspace",), uid=UID, gid=GID)
        staging = top.make_dir((b"staging",), uid=0, gid=0, mode=0o700)
        (tmp_path / "workspace/f").write_bytes(b"before")
        wanted = [inline("f", b"new"), inline("g", bytes(2 << 20))]
        with workspace, staging, pytest.raises(InsufficientStorage) as caught:
            stage(staging, plan(wanted, {}, {}), uid=UID, gid=GID)
        assert str(tmp_path) not in caught.value.message
        assert (tmp_path / "workspace/f").read_bytes() == b"before"
        assert os.listdir(tmp_path / "workspace") == ["f"]
        assert os.listdir(tmp_path / "staging") == []


@pytest.mark.parametrize(("inodes", "fits"), [(8, False), (12, False), (15, False), (17, True)])
def test_room_for_the_parent_directories_is_taken_before_anything_is_placed(
    tmp_path: Path, inodes: int, fits: bool
) -> None:
    with tmpfs(tmp_path, size=1 << 20, inodes=inodes), Tree.open(str(tmp_path)) as top:
        workspace = top.make_dir((b"workspace",), uid=UID, gid=GID)
        staging = top.make_dir((b"staging",), uid=0, gid=0, mode=0o700)
        steps = plan([inline("a/b/c/d/e/f/g/h/i/j")], {}, {})
        with workspace, staging:
            try:
                staged = stage(staging, steps, uid=UID, gid=GID)
            except InsufficientStorage:
                assert not fits and os.listdir(tmp_path / "workspace") == []
            else:
                with staged:
                    staged.release()
                    assert fits and place(workspace, staged, {}, uid=UID, gid=GID).written
        assert os.listdir(tmp_path / "staging") == []


def test_survey_reads_only_what_decides_something(room, prime, monkeypatch) -> None:
    prime(inline("same", b"one"), inline("other", b"one"))
    read = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda *given: read.append(given) or real(*given))
    prime(inline("same", b"one"), inline("other", b"longer"))
    prime(inline("same", b"one", read_only=True))
    assert read == []


def test_a_restored_input_is_called_so(room, prime) -> None:
    wanted = inline("ro", read_only=True)
    prime(wanted)
    (room.data / "ro").unlink()
    steps = plan(
        [wanted], prime.primed, survey(room.workspace, [wanted], prime.primed, prime.cache)
    )
    assert [step.action for step in steps] == [Action.RESTORE]
