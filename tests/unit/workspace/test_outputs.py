"""What is collected after a run, what is not, and the reason that is given."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import time
from pathlib import Path

import pytest

from runner.workspace import collecting, fingerprint
from runner.workspace.collecting import collect
from runner.workspace.fingerprint import RACY_NS, ChangedWhileReadError, HashCache
from runner.workspace.outputs import Caps, Reason, Status, read_bounded
from runner.workspace.paths import SafePath
from runner.workspace.priming import Primed
from runner.workspace.stopping import Stop, Stopped

UID = GID = 200000


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def found(room, primed=None, surfaced=None, cache=None, **caps):
    return collect(
        room.workspace,
        primed or {},
        surfaced or {},
        cache=cache or HashCache(),
        caps=Caps(**caps),
    )


def outputs(result) -> dict[str, Status]:
    return {str(each.path): each.status for each in result.files}


def skipped(result) -> dict[str, Reason]:
    return {each.path: each.reason for each in result.skipped}


def test_new_and_modified_files_are_outputs_and_unchanged_inputs_are_not(room) -> None:
    put(room.data / "main.py", b"code")
    put(room.data / "in.csv", b"edited").chmod(0o640)
    put(room.data / "out/x.txt", b"new")
    put(room.data / "old.txt", b"second")
    primed = {"main.py": Primed(sha(b"code")), "in.csv": Primed(sha(b"before"), input_id="h1")}
    result = found(room, primed, {"old.txt": sha(b"first")})
    assert outputs(result) == {
        "in.csv": Status.MODIFIED,
        "old.txt": Status.MODIFIED,
        "out/x.txt": Status.NEW,
    }
    edited, old, _ = result.files
    assert edited.modified_from == primed["in.csv"] and old.modified_from is None
    assert (edited.size, edited.mode, edited.sha256) == (6, 0o640, sha(b"edited"))
    assert [str(path) for path in result.unchanged] == ["main.py"]
    assert result.skipped == [] and result.complete


def test_what_was_delivered_is_not_an_output_again(room) -> None:
    put(room.data / "out", b"one")
    assert outputs(found(room, surfaced={"out": sha(b"one")})) == {}
    assert outputs(found(room)) == {"out": Status.NEW}


def test_an_input_that_went_back_to_its_original_is_an_output_if_the_edit_was_delivered(
    room,
) -> None:
    put(room.data / "in", b"original")
    primed = {"in": Primed(sha(b"original"))}
    assert outputs(found(room, primed)) == {}
    assert outputs(found(room, primed, {"in": sha(b"edited")})) == {"in": Status.MODIFIED}


def test_a_forged_size_and_mtime_hide_nothing(room) -> None:
    path = put(room.data / "f", b"one")
    cache = HashCache()
    time.sleep(2 * RACY_NS / 1e9)
    assert outputs(found(room, surfaced={"f": sha(b"one")}, cache=cache)) == {}
    before = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert outputs(found(room, surfaced={"f": sha(b"one")}, cache=cache)) == {"f": Status.MODIFIED}


def test_an_unchanged_file_is_not_read_twice(room, monkeypatch) -> None:
    put(room.data / "a/f")
    cache = HashCache()
    time.sleep(2 * RACY_NS / 1e9)
    first = found(room, cache=cache)
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("read again"))
    assert found(room, cache=cache).files == first.files


def test_a_read_only_input_is_never_an_output(room) -> None:
    intact, changed = put(room.data / "intact", b"one"), put(room.data / "changed", b"two")
    intact.chmod(0o444)
    os.chown(changed, UID, GID)
    put(room.data / "swapped", b"three").chmod(0o444)
    primed = {
        name: Primed(sha(content), read_only=True)
        for name, content in [("intact", b"one"), ("changed", b"two"), ("swapped", b"other")]
    }
    result = found(room, primed)
    assert result.files == [] and [str(path) for path in result.unchanged] == ["intact"]
    assert set(skipped(result).values()) == {Reason.READ_ONLY_INPUT}
    assert skipped(result).keys() == {"changed", "swapped"}


def test_what_is_no_regular_file_is_named(room, tmp_path: Path) -> None:
    (room.data / "link").symlink_to(put(tmp_path / "secret"))
    (room.data / "dangling").symlink_to("nowhere")
    (room.data / "dirlink").symlink_to(tmp_path)
    os.mkfifo(room.data / "fifo")
    socket.socket(socket.AF_UNIX).bind(str(room.data / "socket"))
    os.mknod(room.data / "device", 0o020666, os.makedev(1, 3))
    result = found(room)
    assert set(skipped(result).values()) == {Reason.NOT_REGULAR}
    assert len(result.skipped) == 6 and result.files == []


def test_hard_linked_files_are_outputs_under_each_name(room) -> None:
    os.link(put(room.data / "a"), room.data / "b")
    assert outputs(found(room)) == {"a": Status.NEW, "b": Status.NEW}


def test_names_that_the_client_could_not_send_back_are_skipped(room) -> None:
    os.close(os.open(os.fsencode(room.data) + b"/bad\xff", os.O_CREAT))
    put(room.data / ("d" * 200) / ("f" * 200))
    put(room.data / "/".join("abcdefghij") / "k")
    result = found(room)
    assert skipped(result) == {
        "a/b/c/d/e/f/g/h/i/j": Reason.TOO_DEEP,
        "bad\\xff": Reason.NAME_NOT_UTF8,
        f"{'d' * 200}/{'f' * 200}": Reason.NAME_TOO_LONG,
    }


def test_caps_are_told_file_by_file(room) -> None:
    for number in range(5):
        put(room.data / f"{number}")
    put(room.data / "big", bytes(101))
    put(room.data / "known", b"known")
    result = found(room, surfaced={"known": sha(b"known")}, files=2, file_bytes=100)
    assert outputs(result).keys() == {"0", "1"}
    many = dict.fromkeys("234", Reason.TOO_MANY)
    assert skipped(result) == {**many, "big": Reason.TOO_LARGE}


def test_a_large_input_is_compared_all_the_same(room) -> None:
    put(room.data / "big", bytes(101))
    assert skipped(found(room, {"big": Primed(sha(bytes(101)))}, file_bytes=100)) == {}
    edited = found(room, {"big": Primed(sha(b"before"))}, file_bytes=100)
    assert skipped(edited) == {"big": Reason.TOO_LARGE}


def test_no_more_is_read_than_allowed(room) -> None:
    put(room.data / "a", bytes(60))
    put(room.data / "b", bytes(60))
    put(room.data / "c", bytes(40))
    result = found(room, read_bytes=100)
    assert outputs(result).keys() == {"a", "c"}
    assert skipped(result) == {"b": Reason.NOT_COMPARED}


def never_read(monkeypatch) -> None:
    monkeypatch.setattr(collecting, "hash_file", lambda *_, **__: pytest.fail("it was read"))


def test_no_more_holes_are_hashed_than_allowed(room) -> None:
    for name in "ab":
        os.truncate(put(room.data / name), 3 << 20)
    put(room.data / "c", bytes(5 << 20))
    result = found(room, hole_bytes=4 << 20)
    assert outputs(result).keys() == {"a", "c"} and result.is_cut
    assert skipped(result) == {"b": Reason.NOT_COMPARED}


def test_what_no_result_can_carry_is_named_and_not_read(room, monkeypatch) -> None:
    os.truncate(put(room.data / "new"), 500 << 20)
    os.truncate(put(room.data / "grown"), 500 << 20)
    never_read(monkeypatch)
    result = collect(
        room.workspace,
        {"grown": Primed(sha(b"x"))},
        {},
        cache=HashCache(),
        caps=Caps(inline_bytes=1 << 20),
        sizes={"grown": 1},
    )
    assert skipped(result) == dict.fromkeys(("grown", "new"), Reason.INLINE_BUDGET)
    assert {each.size for each in result.skipped} == {500 << 20} and not result.is_cut


def test_what_a_result_carries_is_within_its_budget(room) -> None:
    for name, size in (("a", 60), ("b", 50), ("c", 40), ("d", 1), ("had", 70), ("was", 70)):
        put(room.data / name, bytes(size))
    surfaced = {"had": sha(bytes(70)), "was": sha(b"before")}
    result = found(room, surfaced=surfaced, inline_bytes=100)
    assert outputs(result).keys() == {"a", "c"}
    assert skipped(result) == dict.fromkeys(("b", "d", "was"), Reason.INLINE_BUDGET)


def test_an_input_of_another_size_is_an_edit(room, monkeypatch) -> None:
    put(room.data / "edited", b"longer")
    put(room.data / "sealed", b"longer").chmod(0o444)
    primed = {"edited": Primed(sha(b"x")), "sealed": Primed(sha(b"x"), read_only=True)}
    sizes = {"edited": 1, "sealed": 1}
    result = collect(room.workspace, primed, {}, cache=HashCache(), sizes=sizes)
    assert outputs(result) == {"edited": Status.MODIFIED}
    assert skipped(result) == {"sealed": Reason.READ_ONLY_INPUT}


def test_more_outputs_than_are_returned_are_not_read(room, monkeypatch) -> None:
    put(room.data / "f")
    never_read(monkeypatch)
    assert skipped(found(room, files=0)) == {"f": Reason.TOO_MANY}


def test_a_walk_that_is_told_to_stop_stops(room) -> None:
    put(room.data / "f")
    stop = Stop()
    stop.ask()
    with pytest.raises(Stopped):
        collect(room.workspace, {}, {}, cache=HashCache(), stop=stop)


def test_more_skipped_files_than_are_named_are_counted(room) -> None:
    for number in range(10):
        (room.data / f"{number}").symlink_to("x")
    result = found(room, skipped=3)
    assert (len(result.skipped), result.skipped_total) == (3, 10)


def test_a_tree_too_large_to_look_at_is_told(room) -> None:
    for number in range(10):
        put(room.data / f"{number}")
    result = found(room, entries=4)
    assert outputs(result).keys() == set("0123") and not result.complete


def test_empty_directories_are_reported(room) -> None:
    for path in ("a", "b/c", "b/d", "z/y/x"):
        (room.data / path).mkdir(parents=True)
    put(room.data / "b/c/f")
    (room.data / "a-link").symlink_to("x")
    result = found(room)
    assert [str(path) for path in result.empty_dirs] == ["a", "b/d", "z/y/x"]
    assert [str(path) for path in found(room, empty_dirs=1).empty_dirs] == ["a"]


def test_a_leased_file_does_not_block(room) -> None:
    path = put(room.data / "f")
    reader, writer = os.pipe()
    holder = os.fork()
    if holder == 0:
        fd = os.open(path, os.O_WRONLY)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        os.write(writer, b"!")
        time.sleep(20)
        os._exit(0)
    os.read(reader, 1)
    try:
        began = time.monotonic()
        assert skipped(found(room)) == {"f": Reason.UNREADABLE}
        assert time.monotonic() - began < 5
    finally:
        os.kill(holder, 9)
        os.waitpid(holder, 0)
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("removed", Reason.VANISHED),
        ("linked", Reason.NOT_REGULAR),
        ("fifo", Reason.NOT_REGULAR),
        ("replaced", Reason.CHANGED_WHILE_READ),
        ("rewritten", Reason.CHANGED_WHILE_READ),
    ],
)
def test_what_changes_between_look_and_read_is_named(
    room, tmp_path: Path, monkeypatch, event: str, reason: Reason
) -> None:
    path = put(room.data / "f")
    secret = put(tmp_path / "secret", b"secret")

    def change(_: object) -> None:
        if event == "rewritten":
            path.write_bytes(b"other bytes")
            return
        path.unlink()
        if event == "linked":
            path.symlink_to(secret)
        elif event == "fifo":
            os.mkfifo(path)
        elif event == "replaced":
            path.write_bytes(b"x")

    class Meddled(HashCache):
        get = lambda self, *given: change(given)  # noqa: E731

    result = found(room, cache=Meddled())
    assert skipped(result) == {"f": reason} and result.files == []


def test_contents_are_read_only_if_they_are_what_was_hashed(room, tmp_path: Path) -> None:
    path, safe = put(room.data / "d/f", b"hello"), SafePath.parse("d/f")
    expected = {"size": 5, "sha256": sha(b"hello")}
    assert read_bounded(room.workspace, safe, **expected) == b"hello"
    secret = put(tmp_path / "d/f", b"hello")

    def link() -> None:
        path.unlink()
        path.symlink_to(secret)

    def parent_link() -> None:
        path.unlink()
        path.parent.rmdir()
        path.parent.symlink_to(secret.parent)

    for change in (
        lambda: path.write_bytes(b"hullo"),
        lambda: path.write_bytes(b"hello!"),
        lambda: path.write_bytes(b"hell"),
        link,
        parent_link,
    ):
        change()
        with pytest.raises(ChangedWhileReadError):
            read_bounded(room.workspace, safe, **expected)


def test_a_file_without_end_is_not_read_without_end(room, monkeypatch) -> None:
    path = put(room.data / "f", b"start")
    real = os.pread

    def growing(fd: int, count: int, offset: int) -> bytes:
        with path.open("ab") as file:
            file.write(bytes(4096))
        return real(fd, count, offset)

    monkeypatch.setattr(fingerprint.os, "pread", growing)
    assert skipped(found(room)) == {"f": Reason.CHANGED_WHILE_READ}
    assert path.stat().st_size < 100_000
