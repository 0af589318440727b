"""Hostile archives, every one of them with a valid seal: what is refused is refused for itself.

The invariant of all: refused with a name, nothing left in staging, nothing outside it changed.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.checkpoint.limits import Limits
from runner.errors import (
    CheckpointCorrupt,
    CheckpointTooLarge,
    CheckpointUnauthentic,
    CheckpointUnsafe,
    RunnerError,
)
from tests.security.hostile_corpus import BOMBS, CORRUPT, UNSAFE_ARCHIVES, UNSAFE_MEMBERS
from tests.unit.checkpoint import forge
from tests.unit.checkpoint.forge import ROOT, directory, file, hard_link, pax, record
from tests.unit.checkpoint.kit import look, restored

LIMITS = Limits(compressed_bytes=1 << 20, expanded_bytes=4 << 20, entries=1000)
LONG = b"n" * 120


@pytest.fixture
def arena(fast_dir: Path) -> Iterator[Path]:
    """Staging with neighbours that a bad archive would like to reach; none may change."""
    (fast_dir / "workspace").mkdir()
    (fast_dir / "workspace/file").write_bytes(b"mine")
    (fast_dir / "staging").mkdir(mode=0o700)
    (fast_dir / "staging/other").write_bytes(b"of another restore")
    before = look(fast_dir)
    yield fast_dir
    assert look(fast_dir).keys() == before.keys()
    assert (fast_dir / "staging/other").read_bytes() == b"of another restore"
    assert (fast_dir / "workspace/file").read_bytes() == b"mine"


def at_each_place(bad: bytes, *, entries: int = 1) -> dict[str, bytes]:
    """The bad member first below the root, behind others, and in a directory's place."""
    return {
        "first": forge.sealed(ROOT, bad, entries=1 + entries),
        "behind files": forge.sealed(
            ROOT, file(b"session/%", b"x" * 700), file(b"session/&"), bad, entries=3 + entries
        ),
        "behind a directory": forge.sealed(
            ROOT, directory(b"session/%/"), file(b"session/%/x"), bad, entries=3 + entries
        ),
    }


@pytest.mark.parametrize("what", UNSAFE_MEMBERS)
def test_what_no_checkpoint_holds_is_refused_wherever_it_stands(arena: Path, what: str) -> None:
    for archive in at_each_place(UNSAFE_MEMBERS[what]).values():
        with pytest.raises(CheckpointUnsafe) as caught:
            restored(archive, arena / "staging", limits=LIMITS)
        assert caught.value.reason == what.partition(":")[0]


@pytest.mark.parametrize("what", UNSAFE_ARCHIVES)
def test_members_in_bad_company_are_refused(arena: Path, what: str) -> None:
    with pytest.raises(CheckpointUnsafe) as caught:
        restored(forge.sealed(*UNSAFE_ARCHIVES[what]), arena / "staging", limits=LIMITS)
    assert caught.value.reason == what.partition(":")[0]


def test_the_forger_makes_good_archives_too(arena: Path) -> None:
    # Else everything above could be refused for a mistake of the forger's.
    good = forge.sealed(
        ROOT,
        directory(b"session/a/"),
        file(b"session/a/b", b"body", mtime=12345),
        forge.symlink(b"session/c", b"/etc/passwd"),
        hard_link(b"session/d", b"session/a/b"),
        pax(record(b"mtime", b"1.5") + record(b"path", b"session/" + LONG)) + file(b"session/n"),
        entries=6,
    )
    restored(good, arena / "staging", name=b"good", limits=LIMITS)
    top = arena / "staging/good"
    assert (top / "d").read_bytes() == (top / "a/b").read_bytes() == b"body"
    assert (top / os.fsdecode(LONG)).stat().st_mtime_ns == 1_500_000_000
    assert os.readlink(top / "c") == "/etc/passwd"
    # The fixture wants staging as it was.
    os.rename(top, arena.parent / f"{arena.name}-good")
    _remove(arena.parent / f"{arena.name}-good")


def test_what_tarfile_writes_of_the_same_members_is_taken(arena: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind in (("session", tarfile.DIRTYPE), ("session/f", tarfile.REGTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.mtime = kind, 1700000000.25  # type: ignore[assignment]
            tar.addfile(member)
        members = buffer.getvalue()
    restored(forge.sealed(members, entries=2), arena / "staging", name=b"good", limits=LIMITS)
    assert (arena / "staging/good/f").stat().st_mtime_ns == 1700000000_250000000
    _remove(arena / "staging/good")


@pytest.mark.parametrize("tar", CORRUPT.values(), ids=CORRUPT)
def test_damage_that_a_valid_seal_covers_is_refused(arena: Path, tar: bytes) -> None:
    with pytest.raises(CheckpointCorrupt):
        restored(forge.sealed(tar, entries=2), arena / "staging", limits=LIMITS)


def test_each_way_to_end_but_the_one_is_refused(arena: Path) -> None:
    tar = ROOT + file(b"session/a", b"x")
    seal = file(b"runner-sidecar.json", forge.sidecar_json(tar, 2))
    more = file(b"session/b")
    endings: dict[str, tuple[bytes, type[RunnerError]]] = {
        "no end blocks": (tar + seal, CheckpointCorrupt),
        "one end block": (tar + seal + bytes(512), CheckpointCorrupt),
        "half an end block": (tar + seal + bytes(700), CheckpointCorrupt),
        "a third zero block": (tar + seal + bytes(1536), CheckpointUnsafe),
        "padded to a record": (tar + seal + bytes(10240), CheckpointUnsafe),
        "a byte behind": (tar + seal + forge.END + b"x", CheckpointUnsafe),
        "a member behind the end": (tar + seal + forge.END + more, CheckpointUnsafe),
        "a member behind the sidecar": (tar + seal + more + forge.END, CheckpointUnsafe),
        "a sidecar twice": (tar + seal + seal + forge.END, CheckpointUnsafe),
        "a sidecar first": (seal + tar + forge.END, CheckpointUnsafe),
        "a sidecar in the middle": (ROOT + seal + more + forge.END, CheckpointUnsafe),
        "zero blocks in the middle": (ROOT + forge.END + more + seal + forge.END,
                                      CheckpointUnauthentic),
        "no sidecar": (tar + forge.END, CheckpointUnauthentic),
        "a sidecar below session": (
            tar + file(b"session/runner-sidecar.json", forge.sidecar_json(tar, 2)) + forge.END,
            CheckpointUnauthentic,
        ),
        "a sidecar that is a symlink": (
            tar + forge.symlink(b"runner-sidecar.json", b"x") + forge.END, CheckpointUnsafe,
        ),
        "a sidecar that is a directory": (
            tar + directory(b"runner-sidecar.json/") + forge.END, CheckpointUnsafe,
        ),
        "nothing": (b"", CheckpointCorrupt),
        "only zeros": (bytes(1024), CheckpointUnauthentic),
    }  # fmt: skip
    for what, (whole, expected) in endings.items():
        with pytest.raises(expected):
            restored(forge.gzipped(whole), arena / "staging", name=what.encode(), limits=LIMITS)


def test_gzip_tricks_are_refused(arena: Path) -> None:
    good = forge.sealed(ROOT, file(b"session/a", b"x"))
    second = gzip.compress(b"second", mtime=0)
    named = io.BytesIO()
    with gzip.GzipFile("name.tar", "wb", fileobj=named, mtime=0) as packed:
        packed.write(gzip.decompress(good))
    tricks: dict[str, tuple[bytes, type[RunnerError]]] = {
        "second member": (good + second, CheckpointUnsafe),
        "the same member again": (good + good, CheckpointUnsafe),
        "an empty second member": (good + gzip.compress(b""), CheckpointUnsafe),
        "zeros behind": (good + bytes(512), CheckpointUnsafe),
        "a byte behind": (good + b"x", CheckpointUnsafe),
        "a file name": (named.getvalue(), CheckpointUnsafe),
        "every flag": (good[:3] + b"\x1f" + good[4:], CheckpointUnsafe),
        "not deflate": (good[:2] + b"\x07" + good[3:], CheckpointCorrupt),
        "plain tar": (gzip.decompress(good), CheckpointCorrupt),
        "bzip2": (b"BZh91AY&SY" + bytes(100), CheckpointCorrupt),
        "empty": (b"", CheckpointCorrupt),
        "only a header": (good[:10], CheckpointCorrupt),
        "crc": (good[:-8] + bytes(4) + good[-4:], CheckpointCorrupt),
        "length": (good[:-4] + b"\xff" * 4, CheckpointCorrupt),
    }
    for what, (whole, expected) in tricks.items():
        with pytest.raises(expected):
            restored(whole, arena / "staging", name=what.encode(), limits=LIMITS)


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_bombs_hit_a_cap(arena: Path, bomb: Callable[[], bytes]) -> None:
    with pytest.raises(CheckpointTooLarge):
        restored(bomb(), arena / "staging", limits=LIMITS)


def test_a_file_of_the_sidecars_name_is_just_a_file(arena: Path) -> None:
    forged = forge.sidecar_json(b"", 0, primed={"x": {"id": None, "read_only": True}})
    good = forge.sealed(ROOT, file(b"session/runner-sidecar.json", forged))
    sidecar = restored(good, arena / "staging", name=b"good", limits=LIMITS)
    assert dict(sidecar.primed) == {}
    assert (arena / "staging/good/runner-sidecar.json").read_bytes() == forged
    _remove(arena / "staging/good")


def _remove(top: Path) -> None:
    for path in sorted(top.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    top.rmdir()
