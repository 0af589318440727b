"""The cache of pushed inputs: a budget, an order, pins, and bytes that are what they say."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.inputs.cache import InputCache
from runner.inputs.keys import cache_key
from runner.workspace.stopping import Stop, Stopped

A, B, C, D = (letter * 64 for letter in "abcd")


def file_of(shelf, key: str) -> Path:
    return next((shelf.root / "inputs").glob(f"{key}.*"))


def test_a_key_is_of_storage_session_and_id() -> None:
    assert cache_key("hs", "h1") == (
        "357a363481a8ca42f5603ecb25a36d0f0523de6b3e47d79abb503075f76c929c"
    )
    assert cache_key("a", "bc") != cache_key("ab", "c")


def test_what_was_least_recently_used_goes_first(shelf) -> None:
    cache = shelf.cache(max_bytes=30)
    for key in (A, B, C):
        shelf.put(cache, key, bytes(10))
    assert cache.missing([A]) == []
    shelf.put(cache, D, bytes(10))
    assert cache.missing([A, B, C, D]) == [B]
    assert shelf.files == [A, C, D] and cache.size == 30


def test_an_entry_in_use_survives_and_goes_when_it_is_let_go(shelf) -> None:
    cache = shelf.cache(max_bytes=20)
    shelf.put(cache, A, b"a" * 10)
    pinned = cache.pin(A)
    assert pinned is not None
    # Over the budget for as long as that is needed: what has just come stays as well.
    shelf.put(cache, B, bytes(15))
    assert shelf.files == [A, B]
    assert cache.evict(1 << 20) == 1
    with open(pinned.tree.open_file(pinned.parts), "rb") as file:
        assert file.read() == b"a" * 10
    shelf.put(cache, C, bytes(15))
    cache.unpin(pinned)
    assert (shelf.files, cache.size) == ([C], 15)


def test_verifying_that_is_told_to_stop_pins_nothing(shelf) -> None:
    cache, stop = shelf.cache(), Stop()
    shelf.put(cache, A, b"a" * 10)
    stop.ask()
    with pytest.raises(Stopped):
        cache.pin(A, stop)
    assert cache.evict(1) == 1 and shelf.files == []


def test_an_entry_that_is_replaced_while_in_use_keeps_its_bytes(shelf) -> None:
    cache = shelf.cache()
    shelf.put(cache, A, b"old")
    pinned = cache.pin(A)
    shelf.put(cache, A, b"newer", read_only=True)
    with open(pinned.tree.open_file(pinned.parts), "rb") as file:
        assert file.read() == b"old"
    assert shelf.files == [A, A]
    cache.unpin(pinned)
    now = cache.pin(A)
    assert shelf.files == [A] and (now.size, now.read_only) == (5, True)
    assert cache.size == 5


def test_the_same_bytes_pushed_again_heal_a_damaged_entry(shelf) -> None:
    cache = shelf.cache()
    shelf.put(cache, A, b"right")
    assert cache.missing([A]) == []
    file_of(shelf, A).write_bytes(b"wrong")
    shelf.put(cache, A, b"right")
    assert cache.missing([A]) == [] and cache.size == 5
    assert file_of(shelf, A).read_bytes() == b"right"


def test_a_damaged_entry_is_not_there_and_is_removed(shelf) -> None:
    cache = shelf.cache()
    for damage in (b"wrong", b"longer than it was", b""):
        shelf.put(cache, A, b"right")
        assert cache.missing([A]) == []
        file_of(shelf, A).write_bytes(damage)
        assert cache.pin(A) is None
        assert (shelf.files, cache.size) == ([], 0)
    shelf.put(cache, A, b"right")
    file_of(shelf, A).unlink()
    assert cache.missing([A]) == [A] and cache.size == 0


def test_unchanged_bytes_are_read_once(shelf, monkeypatch) -> None:
    from runner.inputs import cache as module

    reads = []
    real = module.hash_file
    monkeypatch.setattr(module, "hash_file", lambda fd, **_: reads.append(fd) or real(fd))
    cache = shelf.cache()
    shelf.put(cache, A, b"bytes")
    for _ in range(5):
        assert cache.missing([A]) == []
    assert len(reads) == 1
    os.utime(file_of(shelf, A))
    assert cache.missing([A]) == [] and len(reads) == 2


def test_the_next_daemon_finds_entries_in_their_order(shelf) -> None:
    cache = shelf.cache()
    for key in (A, B, C):
        shelf.put(cache, key, bytes(10), read_only=key == B)
    assert cache.missing([A]) == []
    (shelf.root / "inputs" / "half.tmp").write_bytes(b"x")
    (shelf.root / "inputs" / "directory").mkdir()
    again = InputCache(shelf.inputs, max_bytes=20)
    assert again.missing([B]) == [B]
    assert shelf.files == [A, C] and again.size == 20
    # A crash between the two steps of a replacement leaves both: the newer stands.
    shelf.put(again, A, b"newer")
    newer = file_of(shelf, A)
    older = newer.with_name(f"{A}.{'0' * 64}.rw")
    older.write_bytes(b"older")
    os.utime(older, (1, 1))
    third = shelf.cache()
    assert third.missing([A]) == [] and shelf.files == [A, C]
    assert third.size == 15


def test_many_threads_leave_the_count_right(shelf) -> None:
    cache = shelf.cache(max_bytes=500)
    failures: list[BaseException] = []
    lock = threading.Lock()

    def arrival(key: str, body: bytes):
        with lock:
            return shelf.arrival(key, body)

    def work(seed: int) -> None:
        try:
            for number in range(60):
                key = f"{(seed * 7 + number) % 12:064x}"
                body = bytes([number % 3]) * (number % 90)
                cache.store(shelf.staging, [arrival(key, body)])
                pinned = cache.pin(key)
                if pinned is not None:
                    cache.unpin(pinned)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    on_disk = sum(path.stat().st_size for path in (shelf.root / "inputs").iterdir())
    assert cache.size == on_disk <= 500


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "pin", "unpin", "evict", "reopen"]),
            st.sampled_from([A, B, C, D]),
            st.integers(0, 40),
        ),
        max_size=25,
    )
)
def test_whatever_happens_the_disk_and_the_count_agree(shelf, steps) -> None:
    for path in (shelf.root / "inputs").iterdir():
        path.unlink()
    cache = shelf.cache(max_bytes=60)
    pins = []
    for what, key, size in steps:
        if what == "put":
            shelf.put(cache, key, bytes([size]) * size)
        elif what == "pin" and (pinned := cache.pin(key)) is not None:
            pins.append(pinned)
        elif what == "unpin" and pins:
            cache.unpin(pins.pop())
        elif what == "evict":
            cache.evict(size)
        elif what == "reopen" and not pins:
            cache = shelf.cache(max_bytes=60)
        for pinned in pins:
            with open(pinned.tree.open_file(pinned.parts), "rb") as file:
                assert len(file.read()) == pinned.size
    for pinned in pins:
        cache.unpin(pinned)
    on_disk = sum(path.stat().st_size for path in (shelf.root / "inputs").iterdir())
    assert cache.size == on_disk <= 60
