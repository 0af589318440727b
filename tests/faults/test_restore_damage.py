"""Damage and loss: whatever happens to an archive, or to its client, staging is left as it was."""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.checkpoint.restore import Expected, Restore
from runner.checkpoint.sidecar import derive_key
from runner.errors import (
    CheckpointCorrupt,
    CheckpointRefused,
    CheckpointUnauthentic,
    CheckpointUnsafe,
    CheckpointWrongSession,
    InsufficientStorage,
)
from runner.workspace.tree import Tree
from tests.unit.checkpoint import forge
from tests.unit.checkpoint.kit import (
    KEY,
    LIMITS,
    OWNER,
    SESSION,
    facts,
    look,
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
    image, mount = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(2 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", "-N", "64", str(image)], check=True)
    mount.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)


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


# From the event loop


def expected() -> Expected:
    """What `saved` seals."""
    return Expected(session=SESSION, key=KEY, owner=OWNER, limits=LIMITS)


@pytest.fixture
def staging(fast_dir: Path) -> Iterator[Tree]:
    """An empty staging; no thread of a restore may outlive the test."""
    (fast_dir / "staging").mkdir()
    with Tree.open(str(fast_dir / "staging")) as tree:
        yield tree
    assert [each.name for each in threading.enumerate() if "checkpoint" in each.name] == []


async def test_a_restore_leaves_its_tree_only_until_the_context_ends(
    archive: bytes, staging: Tree, fast_dir: Path
) -> None:
    async with Restore(staging, b"r", expected()) as restore:
        for start in range(0, len(archive), 1000):
            await restore.feed(archive[start : start + 1000])
        sidecar = await restore.finish()
        assert look(fast_dir / "staging/r") == look(fast_dir / "workspace")
    assert sidecar.incarnation == facts().incarnation
    assert os.listdir(fast_dir / "staging") == []


async def test_a_lost_client_leaves_nothing(archive: bytes, staging: Tree, fast_dir: Path) -> None:
    with pytest.raises(ConnectionResetError):
        async with Restore(staging, b"r", expected()) as restore:
            await restore.feed(archive[: len(archive) // 2])
            raise ConnectionResetError
    assert os.listdir(fast_dir / "staging") == []


async def test_a_cancelled_restore_leaves_nothing(
    archive: bytes, staging: Tree, fast_dir: Path
) -> None:
    fed = asyncio.Event()

    async def run() -> None:
        async with Restore(staging, b"r", expected()) as restore:
            await restore.feed(archive[:-20])
            fed.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(run())
    await fed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(fast_dir / "staging") == []


async def test_a_bad_archive_is_refused_while_it_is_still_coming(
    staging: Tree, fast_dir: Path
) -> None:
    bad = forge.sealed(forge.ROOT, forge.file(b"session/../x"), forge.file(b"session/y"))
    with pytest.raises(CheckpointUnsafe):
        async with Restore(staging, b"r", expected()) as restore:
            await restore.feed(bad)
            while True:  # A client that never stops.
                await restore.feed(os.urandom(64 << 10))
    assert os.listdir(fast_dir / "staging") == []


async def test_the_loop_runs_on_while_a_restore_works(fast_dir: Path, staging: Tree) -> None:
    (fast_dir / "large").mkdir()
    (fast_dir / "large/zeros").write_bytes(bytes(200 << 20))
    archive = saved(fast_dir / "large")
    longest, last = 0.0, asyncio.get_running_loop().time()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.001)
            now = asyncio.get_running_loop().time()
            longest, last = max(longest, now - last), now

    watching = asyncio.create_task(watch())
    async with Restore(staging, b"r", expected()) as restore:
        await restore.feed(archive[: 256 << 10])
        for start in range(256 << 10, len(archive), 256 << 10):
            await restore.feed(archive[start : start + (256 << 10)])
        await restore.finish()
    watching.cancel()
    assert longest < 0.25


MEMORY = """
import resource, sys
from pathlib import Path
from tests.unit.checkpoint.kit import restored, saved
from runner.checkpoint.limits import Limits
top = Path(sys.argv[1])
restored(saved(top / "small"), top / "staging", name=b"warm")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
restored((top / "archive").read_bytes(), top / "staging", limits=Limits.of(1 << 30))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("what", ["one large file", "many members", "many hard links"])
def test_memory_does_not_grow_with_the_archive(fast_dir: Path, what: str) -> None:
    (fast_dir / "small").mkdir()
    members = [forge.ROOT, forge.file(b"session/a", b"x")]
    if what == "one large file":
        members.append(forge.file(b"session/b", bytes(200 << 20)))
    elif what == "many members":
        members += [forge.file(b"session/b%06d" % number) for number in range(60_000)]
    else:
        members += [
            forge.hard_link(b"session/b%06d" % number, b"session/a") for number in range(60_000)
        ]
    (fast_dir / "archive").write_bytes(forge.sealed(*members))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(fast_dir)], check=True, capture_output=True
    )
    assert int(done.stdout) << 10 < 32 << 20
