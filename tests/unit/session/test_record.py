"""The record on disk: sealed, replaced whole, and believed only with its seal."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.session.record import Dirty, Record, RecordUnreadable, Store
from runner.workspace.priming import Primed

RECORD = Record(
    session="s",
    incarnation="inc_1",
    provisioned="inc_1",
    dirty=Dirty.PRIMING,
    primed={"a/b": Primed("00" * 32, read_only=True, input_id="id", storage_session_id="st")},
    surfaced={"ünï": "11" * 32},
)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    yield directory


def opened(state: Path) -> Store:
    return Store(os.open(state, os.O_RDONLY | os.O_DIRECTORY))


def test_what_was_saved_is_what_the_next_daemon_loads(state: Path) -> None:
    opened(state).save(RECORD, durable=True)
    assert opened(state).load() == RECORD
    assert {path.name for path in state.iterdir()} == {"key", "session.json"}
    for path in state.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_disk_holds_nothing_until_there_is_a_record(state: Path, tmp_path: Path) -> None:
    store = opened(state)
    assert store.load() is None and not list(state.iterdir())
    store.save(RECORD)
    assert opened(state).key == store.key and len(store.key) == 32
    (tmp_path / "other").mkdir()
    other = opened(tmp_path / "other")
    other.save(RECORD)
    assert other.key != store.key


def test_what_another_key_sealed_is_not_believed(state: Path) -> None:
    store = opened(state)
    store.save(RECORD)
    store.rekey(b"k" * 32)
    assert opened(state).key == b"k" * 32
    with pytest.raises(RecordUnreadable):
        opened(state).load()
    (state / "key").unlink()
    with pytest.raises(RecordUnreadable):
        opened(state).load()


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 65, 100])
def test_a_record_that_is_cut_is_not_believed(state: Path, cut: int) -> None:
    opened(state).save(RECORD)
    path = state / "session.json"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(RecordUnreadable):
        opened(state).load()


def test_no_byte_of_it_can_be_changed(state: Path) -> None:
    opened(state).save(RECORD)
    path = state / "session.json"
    good = path.read_bytes()
    for offset in range(0, len(good), 7):
        path.write_bytes(good[:offset] + bytes([good[offset] ^ 1]) + good[offset + 1 :])
        with pytest.raises(RecordUnreadable):
            opened(state).load()


def test_a_record_of_another_disk_is_not_believed(state: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    opened(tmp_path / "other").save(RECORD)
    (state / "session.json").write_bytes((tmp_path / "other/session.json").read_bytes())
    with pytest.raises(RecordUnreadable):
        opened(state).load()


def test_a_write_that_fails_leaves_the_old_record(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(state)
    store.save(RECORD)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="full"):
        store.save(Record(session="other", incarnation="x"))
    monkeypatch.undo()
    assert opened(state).load() == RECORD
    # What the failed write left is in nobody's way.
    opened(state).save(Record(session="next", incarnation="y"))
    assert opened(state).load() == Record(session="next", incarnation="y")


def test_a_link_where_a_file_should_be_is_not_followed(state: Path, tmp_path: Path) -> None:
    store = opened(state)
    (tmp_path / "victim").write_bytes(b"kept")
    for name in ("session.json", "session.json.new"):
        (state / name).symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match=r"."):
        store.load()
    store.save(RECORD)
    assert (tmp_path / "victim").read_bytes() == b"kept" and store.load() == RECORD


def test_an_emptied_record_keeps_whose_it_is_and_nothing_else() -> None:
    assert RECORD.emptied() == Record(session="s", incarnation="inc_1")
