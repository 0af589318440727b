"""Saving: the same bytes for the same state, the state's name, and caps."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from runner.checkpoint import gzipframe, inventory
from runner.checkpoint.limits import CHUNK, Limits
from runner.checkpoint.save import save
from runner.errors import CheckpointTooLarge
from runner.workspace.tree import Tree
from tests.unit.checkpoint.kit import (
    KEY,
    LIMITS,
    SESSION,
    facts,
    members_of,
    primed,
    restored,
    saved,
)


def state(tree: Tree) -> str:
    return inventory.plan(tree, LIMITS).state


# The bytes


def test_the_same_workspace_gives_the_same_bytes(workspace: Path) -> None:
    assert saved(workspace) == saved(workspace)


def test_a_restored_workspace_gives_the_same_bytes(workspace: Path, fast_dir: Path) -> None:
    archive = saved(workspace)
    restored(archive, fast_dir / "staging")
    assert members_of(saved(fast_dir / "staging/restored")) == members_of(archive)


def test_an_archive_is_what_the_format_page_says(workspace: Path) -> None:
    archive = saved(workspace, facts(primed={"in.csv": primed()}, surfaced={"out": "cd" * 32}))
    assert archive[:10] == gzipframe.HEADER
    tar = gzip.decompress(archive)
    with tarfile.open(fileobj=io.BytesIO(tar)) as reader:
        members = reader.getmembers()
        sidecar = json.load(reader.extractfile("runner-sidecar.json"))  # type: ignore[arg-type]
    names = ["session", "session/d", "session/d/file", "session/link", "session/random"]
    assert [each.name for each in members] == [*names, "session/symlink", "runner-sidecar.json"]
    assert {(each.uid, each.gid, each.uname, each.gname) for each in members} == {(0, 0, "", "")}
    assert members[3].linkname == "session/d/file"
    assert tar.endswith(bytes(1024)) and any(tar[-1536:-1024])
    before = tar[: members[-1].offset]
    assert sidecar["archive"] == {
        "sha256": hashlib.sha256(before).hexdigest(),
        "entries": 6,
        "bytes": len(before),
    }
    assert sidecar["marker"] == "runner.sidecar.v1"
    assert sidecar["session"] == SESSION
    assert sidecar["primed"] == {
        "in.csv": {"id": "file-1", "read_only": False, "sha256": "ab" * 32}
    }
    assert sidecar["surfaced"] == {"out": "cd" * 32}
    mac = sidecar.pop("mac")
    canonical = json.dumps(sidecar, sort_keys=True, separators=(",", ":")).encode()
    assert mac == hmac.new(KEY, canonical, hashlib.sha256).hexdigest()


# The state's name


def test_every_change_gives_the_state_another_name(workspace: Path, tree: Tree) -> None:
    seen = [state(tree)]
    path = workspace / "d/file"
    for change in (
        lambda: path.write_bytes(b"more bytes"),
        lambda: path.chmod(0o600),
        lambda: os.utime(path, ns=(0, 0)),
        (workspace / "new").mkdir,
        lambda: (workspace / "new").rename(workspace / "renamed"),
        lambda: (workspace / "renamed").chmod(0o700),
        (workspace / "symlink").unlink,
        lambda: os.symlink("e", workspace / "symlink"),
        lambda: workspace.chmod(0o710),
    ):
        change()
        seen.append(state(tree))
    assert len(set(seen)) == len(seen)


def test_a_rewrite_with_the_old_size_and_time_is_seen(workspace: Path, tree: Tree) -> None:
    before, was = state(tree), (workspace / "d/file").stat()
    (workspace / "d/file").write_bytes(b"ydob")
    os.utime(workspace / "d/file", ns=(was.st_atime_ns, was.st_mtime_ns))
    assert state(tree) != before


def test_reading_a_file_keeps_the_states_name(workspace: Path, tree: Tree) -> None:
    before = state(tree)
    (workspace / "random").read_bytes()
    saved(workspace)
    assert state(tree) == before


def test_the_etag_names_what_is_sealed_too_but_not_the_moment(tree: Tree) -> None:
    planned = inventory.plan(tree, LIMITS)
    etag = planned.etag(facts())
    assert planned.etag(facts(created_at="2030-01-01T00:00:00Z")) == etag
    for other in (
        facts(session="another"),
        facts(incarnation="inc_2"),
        facts(primed={"x": primed()}),
        facts(surfaced={"x": "cd" * 32}),
    ):
        assert planned.etag(other) != etag


def test_no_file_is_read_for_a_plan(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Tree.open(str(workspace)) as tree:
        monkeypatch.setattr(os, "readv", None)
        monkeypatch.setattr(os, "read", None)
        assert inventory.plan(tree, LIMITS).entries == 6


# Caps


@pytest.mark.parametrize(
    "limits, reason",
    [
        (Limits(expanded_bytes=20_000), "expanded"),
        (Limits(entries=5), "entries"),
        (Limits(name_bytes=14), "name"),
    ],
)
def test_what_the_plan_can_know_is_refused_before_the_first_byte(
    tree: Tree, limits: Limits, reason: str
) -> None:
    with pytest.raises(CheckpointTooLarge) as caught:
        inventory.plan(tree, limits)
    assert caught.value.reason == reason


def test_a_plan_counts_every_byte(workspace: Path, tree: Tree, fast_dir: Path) -> None:
    (workspace / ("n" * 200)).write_bytes(b"x")
    (workspace / ("é" * 20)).mkdir()
    os.symlink("t" * 1000, workspace / "far")
    os.utime(workspace / "random", ns=(0, 0))
    os.utime(workspace / "d", ns=(0, -1))
    planned = inventory.plan(tree, LIMITS)
    sidecar = restored(saved(workspace), fast_dir / "staging")
    assert planned.tar_bytes == sidecar.archive.bytes
    inventory.plan(tree, Limits(expanded_bytes=planned.tar_bytes))
    with pytest.raises(CheckpointTooLarge):
        inventory.plan(tree, Limits(expanded_bytes=planned.tar_bytes - 1))


def test_a_stream_over_the_compressed_cap_is_cut(tree: Tree) -> None:
    limits = Limits(compressed_bytes=CHUNK)
    planned = inventory.plan(tree, limits)
    with pytest.raises(CheckpointTooLarge) as caught:
        list(save(tree, facts(), planned, key=KEY, limits=limits))
    assert caught.value.reason == "compressed"


def test_surfaced_is_dropped_to_fit_and_primed_is_not(workspace: Path, fast_dir: Path) -> None:
    limits = Limits(sidecar_bytes=4000)
    many = {f"out{number}": "cd" * 32 for number in range(50)}
    said = facts(primed={"in": primed()}, surfaced=many)
    sidecar = restored(saved(workspace, said, limits=limits), fast_dir / "staging", limits=limits)
    assert (dict(sidecar.primed), dict(sidecar.surfaced)) == ({"in": primed()}, {})
    said = facts(primed={f"in{number}": primed() for number in range(50)})
    with pytest.raises(CheckpointTooLarge) as caught:
        saved(workspace, said, limits=limits)
    assert caught.value.reason == "sidecar"
