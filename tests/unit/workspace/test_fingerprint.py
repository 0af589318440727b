"""When a file counts as unchanged, and when a remembered hash may be used."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from pathlib import Path

import pytest

from runner.workspace.fingerprint import (
    RACY_NS,
    ChangedWhileReadError,
    Fingerprint,
    HashCache,
    Hashed,
    hash_file,
)
from runner.workspace.stopping import Stop, Stopped

PARTS = (b"f",)


def later() -> int:
    """The clock as it will be when the file is no longer fresh."""
    return time.time_ns() + 2 * RACY_NS


def hashed(path: Path, clock=later) -> Hashed:
    fd = os.open(path, os.O_RDONLY)
    try:
        return hash_file(fd, clock_ns=clock)
    finally:
        os.close(fd)


@pytest.fixture
def file(room) -> Path:
    path = room.data / "f"
    path.write_bytes(b"one")
    return path


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_the_hash_is_sha256_of_the_bytes(file: Path, size: int) -> None:
    content = os.urandom(size)
    file.write_bytes(content)
    assert hashed(file).sha256 == hashlib.sha256(content).hexdigest()


def test_a_change_with_forged_size_and_mtime_is_noticed(file: Path) -> None:
    before = file.lstat()
    time.sleep(0.02)
    file.write_bytes(b"two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.lstat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert Fingerprint.of(after) != Fingerprint.of(before)


def test_mtime_alone_is_not_compared() -> None:
    one, other = Fingerprint(1, 2, 3, 4, 5), Fingerprint(1, 2, 3, 99, 5)
    assert one == other and hash(one) == hash(other)
    for changed in ((9, 2, 3, 4, 5), (1, 9, 3, 4, 5), (1, 2, 9, 4, 5), (1, 2, 3, 4, 9)):
        assert Fingerprint(*changed) != one


def test_an_unchanged_file_is_found_again(file: Path) -> None:
    cache = HashCache()
    one = hashed(file)
    cache.put(PARTS, one)
    assert cache.get(PARTS, file.lstat()) == one.sha256
    file.chmod(0o600)
    assert cache.get(PARTS, file.lstat()) is None


def test_a_hash_made_within_the_tick_of_the_change_is_not_kept(file: Path) -> None:
    ctime = file.lstat().st_ctime_ns
    cases = {ctime - 5: False, ctime: False, ctime + RACY_NS - 1: False, ctime + RACY_NS: True}
    for clock, kept in cases.items():
        cache = HashCache()
        cache.put(PARTS, hashed(file, clock=lambda now=clock: now))
        assert (cache.get(PARTS, file.lstat()) is not None) is kept


def test_a_fresh_hash_drops_an_old_one(file: Path) -> None:
    cache = HashCache()
    cache.put(PARTS, hashed(file))
    cache.put(PARTS, hashed(file, clock=lambda: 0))
    assert cache.size == 0


def test_a_file_that_changes_under_the_reader_is_told(file: Path, monkeypatch) -> None:
    real = os.pread
    changes = {
        "grown": lambda: file.open("ab").write(b"more"),
        "cut": lambda: os.truncate(file, 1),
        "touched": lambda: file.chmod(0o600),
    }
    for change in changes.values():

        def meanwhile(fd: int, count: int, offset: int, change=change) -> bytes:
            if offset == 0:
                change()
            return real(fd, count, offset)

        monkeypatch.setattr(os, "pread", meanwhile)
        with pytest.raises(ChangedWhileReadError):
            hashed(file)


def test_a_full_cache_keeps_what_it_has_until_it_is_swept(file: Path) -> None:
    cache = HashCache(max_entries=2)
    status = file.lstat()
    print_of = Fingerprint.of(status)
    for name in (b"a", b"b", b"c"):
        cache.put((name,), Hashed(print_of, name.hex(), began_ns=1 << 62))
    assert [cache.get((name,), status) for name in (b"a", b"b", b"c")] == ["61", "62", None]
    cache.sweep()
    assert cache.get((b"b",), status) == "62"
    cache.sweep()
    assert cache.size == 1
    cache.put((b"c",), Hashed(print_of, "63", began_ns=1 << 62))
    assert cache.get((b"c",), status) == "63"
    cache.clear()
    assert cache.size == 0


@pytest.mark.parametrize("tail", [b"", b"end"])
def test_holes_count_as_zeros_and_are_not_read(file: Path, monkeypatch, tail: bytes) -> None:
    size = 5 << 20
    with file.open("r+b") as opened:
        opened.truncate(size)
        opened.seek((2 << 20) + 7)
        opened.write(b"middle")
        opened.seek(size)
        opened.write(tail)
    read: list[int] = []
    real = os.pread

    def counted(fd: int, count: int, offset: int) -> bytes:
        chunk = real(fd, count, offset)
        read.append(len(chunk))
        return chunk

    monkeypatch.setattr(os, "pread", counted)
    expected = hashlib.sha256(file.read_bytes()).hexdigest()
    assert hashed(file).sha256 == expected
    # The start and the middle; the rest of the tail.
    assert sum(read) == (2 << 20) + len(tail)


def test_holes_are_read_where_the_file_system_cannot_tell_of_them(file: Path, monkeypatch) -> None:
    os.truncate(file, 3 << 20)

    def refused(*_: int) -> int:
        raise OSError(errno.EINVAL, "no such whence")

    expected = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(os, "lseek", refused)
    assert hashed(file).sha256 == expected


def test_hashing_stops_between_two_chunks(file: Path, monkeypatch) -> None:
    os.truncate(file, 50 << 20)
    stop, real, looked = Stop(), os.lseek, []

    def seek(fd: int, offset: int, whence: int) -> int:
        looked.append(offset)
        if len(looked) == 3:
            stop.ask()
        return real(fd, offset, whence)

    monkeypatch.setattr(os, "lseek", seek)
    fd = os.open(file, os.O_RDONLY)
    try:
        with pytest.raises(Stopped):
            hash_file(fd, stop=stop)
    finally:
        os.close(fd)
    assert len(looked) == 3
