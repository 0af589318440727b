"""What a delta holds, what it costs, and what a base that cannot be trusted leads to."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.checkpoint import bases, writer
from runner.checkpoint.limits import Limits
from tests.unit.checkpoint.kit import Deltas, chained, look, saved


@pytest.fixture
def deltas(fast_dir: Path) -> Iterator[Deltas]:
    """A workspace with something of each kind, and what is known of its states."""
    top = fast_dir / "workspace"
    (top / "d/e").mkdir(parents=True)
    for name in ("a", "d/b", "d/e/c", "z"):
        (top / name).write_bytes(os.urandom(9_000))
    os.link(top / "d/b", top / "d/linked")
    os.symlink("a", top / "symlink")
    with Deltas(top) as each:
        yield each


def sent(archive: bytes) -> tuple[list[str], list[str]]:
    """The members of a delta but its head, root and sidecar; and the names that are gone."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as tar:
        head, root, *members, sidecar = tar.getmembers()
        assert (head.name, root.name, sidecar.name) == (
            "runner-delta",
            "session",
            "runner-sidecar.json",
        )
        file = tar.extractfile(head)
        assert file is not None
        gone = file.read()[65:].decode().split("\0")[:-1]
    return [member.name.removeprefix("session/") for member in members], gone


def replaced_by_file(top: Path) -> None:
    shutil.rmtree(top / "d")
    (top / "d").write_bytes(b"x")


def replaced_by_directory(top: Path) -> None:
    (top / "a").unlink()
    (top / "a/new").mkdir(parents=True)


def put_back(top: Path) -> None:
    """A byte changes; size and mtime do not."""
    status = (top / "a").stat()
    with open(top / "a", "r+b") as file:
        file.write(b"!")
    os.utime(top / "a", ns=(status.st_atime_ns, status.st_mtime_ns))


def reused(top: Path) -> None:
    body, status = (top / "a").read_bytes(), (top / "a").stat()
    (top / "a").unlink()
    (top / "a").write_bytes(body)
    os.utime(top / "a", ns=(0, status.st_mtime_ns))


EDITS: dict[str, tuple[Callable[[Path], object], list[str], list[str]]] = {
    "nothing": (lambda top: None, [], []),
    "only read": (lambda top: (top / "a").read_bytes(), [], []),
    "a body": (lambda top: (top / "d/e/c").write_bytes(b"x"), ["d", "d/e", "d/e/c"], []),
    "a byte, with size and mtime put back": (put_back, ["a"], []),
    "the same again in a new inode": (reused, ["a"], []),
    "a mode": (lambda top: (top / "z").chmod(0o600), ["z"], []),
    "an mtime": (lambda top: os.utime(top / "z", ns=(0, 5)), ["z"], []),
    "a directory's mode": (lambda top: (top / "d/e").chmod(0o700), ["d", "d/e"], []),
    "the root's mode": (lambda top: top.chmod(0o700), [], []),
    "a file gone": (lambda top: (top / "a").unlink(), [], ["a"]),
    "a directory gone": (lambda top: shutil.rmtree(top / "d/e"), ["d"], ["d/e"]),
    "a file made a fifo": (
        lambda top: ((top / "a").unlink(), os.mkfifo(top / "a")),
        [],
        ["a"],
    ),
    "a directory made a file": (replaced_by_file, ["d"], []),
    "a file made a directory": (replaced_by_directory, ["a", "a/new"], []),
    "a symlink's target": (
        lambda top: ((top / "symlink").unlink(), os.symlink("b", top / "symlink")),
        ["symlink"],
        [],
    ),
    "a file moved": (lambda top: (top / "a").rename(top / "d/a"), ["d", "d/a"], ["a"]),
    "a directory moved": (
        lambda top: (top / "d").rename(top / "y"),
        ["y", "y/b", "y/e", "y/e/c", "y/linked"],
        ["d"],
    ),
    "one more hard link": (
        lambda top: os.link(top / "d/b", top / "d/third"),
        ["d", "d/b", "d/linked", "d/third"],
        [],
    ),
    "the first of two hard links gone": (
        lambda top: (top / "d/b").unlink(),
        ["d", "d/linked"],
        ["d/b"],
    ),
    "a body with two names": (
        lambda top: (top / "d/linked").write_bytes(b"x"),
        ["d", "d/b", "d/linked"],
        [],
    ),
    "a hard link made a file": (
        lambda top: ((top / "d/linked").unlink(), (top / "d/linked").write_bytes(b"x")),
        ["d", "d/b", "d/linked"],
        [],
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_a_delta_holds_what_changed_and_no_more(deltas: Deltas, what: str) -> None:
    edit, members, gone = EDITS[what]
    tag, full = deltas.save()
    edit(deltas.workspace)
    _, delta = deltas.save(tag)
    assert sent(delta) == (members, gone)
    chained([full, delta], deltas.workspace.parent / "staging")
    assert look(deltas.workspace.parent / "staging/restored") == look(deltas.workspace)


def test_no_body_of_an_unchanged_file_is_opened(
    deltas: Deltas, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag, _ = deltas.save()
    (deltas.workspace / "d/e/c").write_bytes(b"x")
    opened = []

    class CountingOs:
        def __getattr__(self, name: str) -> object:
            return getattr(os, name)

        def open(self, name: bytes, *args: object, **more: object) -> int:
            opened.append(name)
            return os.open(name, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "os", CountingOs())
    _, delta = deltas.save(tag)
    assert opened == [b"c"]
    assert len(delta) < len(saved(deltas.workspace)) / 10


def test_what_is_written_behind_a_save_never_looks_unchanged(deltas: Deltas) -> None:
    """In the very tick, too: before Linux 6.13 a ctime moves only with the timer."""
    tag, full = deltas.save()
    archives = [full]
    for number in range(30):
        (deltas.workspace / "z").write_bytes(b"%04d" % number)
        tag, archive = deltas.save(tag)
        archives.append(archive)
    chained(archives, deltas.workspace.parent / "staging")
    assert (deltas.workspace.parent / "staging/restored/z").read_bytes() == b"0029"


def test_only_the_last_states_are_kept_and_a_used_one_longest(deltas: Deltas) -> None:
    tags = []
    for number in range(bases.KEPT_MAX):
        (deltas.workspace / "n").write_bytes(b"%d" % number)
        tags.append(deltas.save()[0])
        time.sleep(0.01)
    assert deltas.bases.find(tags[:1]) is not None
    (deltas.workspace / "n").unlink()
    deltas.save()
    known = [deltas.bases.find([tag]) is not None for tag in tags]
    assert known == [True, False, True, True]


def test_a_full_archive_is_sent_where_a_delta_is_no_smaller(deltas: Deltas) -> None:
    tag, _ = deltas.save()
    for path in sorted(deltas.workspace.rglob("*")):
        os.utime(path, ns=(0, 7), follow_symlinks=False)
    (deltas.workspace / "a").unlink()
    deltas.save(tag)
    assert not deltas.was_delta


def test_a_full_archive_is_sent_where_too_many_names_are_gone(deltas: Deltas) -> None:
    (deltas.workspace / "many").mkdir()
    for number in range(30):
        (deltas.workspace / f"many/{number}").touch()
    tag, _ = deltas.save()
    for path in (deltas.workspace / "many").iterdir():
        path.unlink()
    deltas.save(tag, limits=Limits(gone_bytes=100))
    assert not deltas.was_delta
    deltas.save(tag)
    assert deltas.was_delta


def test_a_state_of_the_future_is_no_base(deltas: Deltas, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that was set back would give a ctime a second time."""
    monkeypatch.setattr(writer.time, "time_ns", lambda: 1_000_000_000)
    tag, _ = deltas.save()
    monkeypatch.undo()
    assert deltas.bases.find([tag]) is None


@pytest.mark.parametrize("what", ["key", "incarnation", "cut", "flipped", "empty"])
def test_a_base_that_cannot_be_trusted_is_unknown(deltas: Deltas, what: str) -> None:
    tag, _ = deltas.save()
    path = deltas.workspace.parent / "bases" / tag.strip('"')
    raw = path.read_bytes()
    other = {"key": {"key": bytes(32)}, "incarnation": {"incarnation": "inc_2"}}.get(what, {})
    if what == "cut":
        path.write_bytes(raw[:-10])
    elif what == "flipped":
        path.write_bytes(raw[:150] + bytes([raw[150] ^ 1]) + raw[151:])
    elif what == "empty":
        path.write_bytes(b"")
    with Deltas(deltas.workspace, **other) as asked:  # type: ignore[arg-type]
        asked.save(tag)
        assert not asked.was_delta


def test_a_full_disk_only_means_that_nothing_is_kept(
    deltas: Deltas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, chunk: bytes) -> None:
        raise OSError(28, "")

    monkeypatch.setattr(bases, "write_all", full)
    tag, archive = deltas.save()
    assert deltas.bases.find([tag]) is None
    chained([archive], deltas.workspace.parent / "staging")
