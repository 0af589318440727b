"""Damage: whatever happens to an archive, it is refused and staging is left as it was."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.checkpoint.sidecar import derive_key
from runner.errors import (
    CheckpointCorrupt,
    CheckpointRefused,
    CheckpointUnauthentic,
    CheckpointUnsafe,
    CheckpointWrongSession,
    InsufficientStorage,
)
from tests.mounts import ext4
from tests.unit.checkpoint import forge
from tests.unit.checkpoint.kit import (
    KEY,
    SESSION,
    restored,
    saved,
)

SPREAD = 64


@pytest.fixture
def archive(fast_dir: Path) -> bytes:
    """A checkpoint with everything in it that a checkpoint can hold."""
    top = fast_dir / "workspace"
    (top / "deep/er").mkdir(parents=True)
    (top / "deep/er/random").write_bytes(os.urandom(50_000))
    (top / "text").write_bytes(b"the same words again " * 5000)
    (top / ("long" * 50)).write_bytes(b"x")
    os.symlink("/etc/passwd", top / "symlink")
    os.link(top / "text", top / "zlink")
    return saved(top)


def refused(archive: bytes, fast_dir: Path, **changes: object) -> CheckpointRefused:
    """The refusal, once it is sure that nothing is left of the archive."""
    with pytest.raises(CheckpointRefused) as caught:
        restored(archive, fast_dir / "staging", **changes)  # type: ignore[arg-type]
    assert os.listdir(fast_dir / "staging") == []
    return caught.value


def spread(length: int) -> list[int]:
    """Offsets from the first byte to the last."""
    return [(length - 1) * step // (SPREAD - 1) for step in range(SPREAD)]


def test_a_truncated_archive_is_refused_wherever_it_ends(archive: bytes, fast_dir: Path) -> None:
    for end in spread(len(archive)):
        assert isinstance(refused(archive[:end], fast_dir), CheckpointCorrupt), end


def test_a_flipped_byte_is_refused_wherever_it_is(archive: bytes, fast_dir: Path) -> None:
    for at in {*spread(len(archive)), *range(10)}:
        refused(archive[:at] + bytes([archive[at] ^ 0xFF]) + archive[at + 1 :], fast_dir)


def test_no_bit_changes_unnoticed(fast_dir: Path) -> None:
    # Not even one that deflate gives no meaning: what would be unpacked is right all the same.
    (fast_dir / "small").mkdir()
    (fast_dir / "small/file").write_bytes(b"words words words")
    whole = saved(fast_dir / "small")
    for at in range(len(whole)):
        flipped = whole[at] ^ 1 << at % 8
        refused(whole[:at] + bytes([flipped]) + whole[at + 1 :], fast_dir)


def test_a_flipped_byte_below_the_checksum_is_refused(archive: bytes, fast_dir: Path) -> None:
    # Compressed again, so that gzip's CRC is right: what is left is the reader and the seal.
    tar = gzip.decompress(archive)
    for at in spread(len(tar)):
        refused(forge.gzipped(tar[:at] + bytes([tar[at] ^ 0x01]) + tar[at + 1 :]), fast_dir)


def test_a_changed_body_under_the_old_seal_is_not_authentic(fast_dir: Path) -> None:
    good = gzip.decompress(forge.sealed(forge.ROOT, forge.file(b"session/a", b"1000 coins")))
    assert isinstance(
        refused(forge.gzipped(good.replace(b"1000 coins", b"9000 coins")), fast_dir),
        CheckpointUnauthentic,
    )


def test_an_appended_byte_is_refused(archive: bytes, fast_dir: Path) -> None:
    for tail in (b"\x00", b"x", archive):
        assert isinstance(refused(archive + tail, fast_dir), CheckpointUnsafe)


def test_a_sidecar_of_another_archive_is_not_authentic(archive: bytes, fast_dir: Path) -> None:
    (fast_dir / "other").mkdir()
    (fast_dir / "other/file").write_bytes(b"x")
    other = gzip.decompress(saved(fast_dir / "other"))
    mine = gzip.decompress(archive)
    cut, other_cut = mine.rindex(b"runner-sidecar.json"), other.rindex(b"runner-sidecar.json")
    spliced = forge.gzipped(mine[:cut] + other[other_cut:])
    refusal = refused(spliced, fast_dir)
    assert isinstance(refusal, CheckpointUnauthentic)
    assert refusal.reason == "digest"


def test_an_archive_of_another_session_says_so(archive: bytes, fast_dir: Path) -> None:
    assert isinstance(refused(archive, fast_dir, session="another"), CheckpointWrongSession)


def test_an_archive_under_another_key_is_not_authentic(archive: bytes, fast_dir: Path) -> None:
    other = derive_key(KEY, SESSION)
    # Whoever lacks the key learns nothing of the session either.
    for session in (SESSION, "another"):
        refusal = refused(archive, fast_dir, key=other, session=session)
        assert isinstance(refusal, CheckpointUnauthentic)
        assert refusal.reason == "mac"


@pytest.mark.parametrize(
    "changes",
    [
        {"mac": None},
        {"mac": "00" * 32},
        {"mac": "é" * 64},
        {"marker": "runner.sidecar.v2"},
        {"marker": None},
        {"surplus": 1},
        {"primed": {"x": {"id": "1", "read_only": "yes", "sha256": "ab" * 32}}},
        {"primed": {"../x": {"id": "1", "read_only": True, "sha256": "ab" * 32}}},
        {"primed": {"/!": {"id": "1", "read_only": True, "sha256": "ab" * 32}}},
        {"surfaced": {"x": "not hex"}},
        {"surfaced": [["x"]]},
        {"archive": {"sha256": "ab" * 32, "entries": 2, "bytes": 2048}},
        {"archive": None},
        {"session": 7},
    ],
)
def test_a_sidecar_that_is_not_right_is_not_authentic(
    fast_dir: Path, changes: dict[str, object]
) -> None:
    bad = forge.sealed(forge.ROOT, forge.file(b"session/a", b"x"), **changes)
    assert isinstance(refused(bad, fast_dir), CheckpointUnauthentic)


@pytest.mark.parametrize(
    "raw", [b"", b"null", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"marker":"runner.sidecar.v1"}']
)
def test_a_sidecar_that_is_no_sidecar_is_not_authentic(fast_dir: Path, raw: bytes) -> None:
    tar = forge.ROOT + forge.file(b"runner-sidecar.json", raw) + forge.END
    assert isinstance(refused(forge.gzipped(tar), fast_dir), CheckpointUnauthentic)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 2 MiB and 64 inodes."""
    with ext4(tmp_path / "disk", size=2 << 20, inodes=64) as mounted:
        yield mounted


@pytest.mark.parametrize("count, size", [(1, 8 << 20), (200, 0)])
def test_a_full_disk_is_named_and_left_clean(
    small_disk: Path, fast_dir: Path, count: int, size: int
) -> None:
    (fast_dir / "workspace").mkdir()
    for number in range(count):
        (fast_dir / f"workspace/{number}").write_bytes(bytes(size))
    archive = saved(fast_dir / "workspace")
    before = os.statvfs(small_disk)
    (small_disk / "staging").mkdir()
    with pytest.raises(InsufficientStorage):
        restored(archive, small_disk / "staging")
    assert os.listdir(small_disk / "staging") == []
    (small_disk / "staging").rmdir()
    assert os.statvfs(small_disk).f_ffree == before.f_ffree
    assert os.statvfs(small_disk).f_bfree == before.f_bfree
