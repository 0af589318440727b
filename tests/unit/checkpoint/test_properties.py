"""Properties: of headers, of whole trees, and of anything at all that is fed to the reader."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.checkpoint import gzipframe, tarformat
from runner.checkpoint.limits import BLOCK, Limits
from runner.checkpoint.reader import ArchiveReader
from runner.checkpoint.tarformat import DIRECTORY, FILE, HARD_LINK, SYMLINK, Member
from runner.checkpoint.tarparse import Records, member_of, parse_header, parse_pax
from runner.errors import RunnerError
from tests.unit.checkpoint import forge
from tests.unit.checkpoint.kit import look, members_of, restored, saved

leaves = st.binary(min_size=1, max_size=40).filter(
    lambda name: name not in (b".", b"..") and b"/" not in name and b"\x00" not in name
)
#: Leaves that meet: properties of order show only among names that are alike.
alike = st.sampled_from([b"a", b"a.", b"a-", b"a0", b"A", b"aa", b"\xff", b"\xc3\xa9", b"n" * 200])
links = st.binary(min_size=1, max_size=300).filter(lambda target: b"\x00" not in target)
times = st.integers(-(2**62), 2**62)
modes = st.integers(0, 0o1777)


@st.composite
def members(draw: st.DrawFn) -> Member:
    """Any member that a workspace can give rise to."""
    name = b"session/" + b"/".join(draw(st.lists(leaves, min_size=1, max_size=8)))
    kind = draw(st.sampled_from((FILE, HARD_LINK, SYMLINK, DIRECTORY)))
    if kind == FILE:
        return Member(name, kind, draw(modes), draw(st.integers(0, 2**40)), draw(times), b"")
    if kind == HARD_LINK:
        return Member(name, kind, 0, 0, 0, b"session/" + draw(leaves))
    if kind == SYMLINK:
        return Member(name, kind, tarformat.SYMLINK_MODE, 0, draw(times), draw(links))
    return Member(name, kind, draw(modes), 0, draw(times), b"")


def decoded(raw: bytes) -> Member:
    """What the reader makes of the headers of one member."""
    records = Records()
    header = parse_header(raw[:BLOCK])
    if header.kind == tarformat.PAX:
        records = parse_pax(raw[BLOCK : BLOCK + header.size])
    return member_of(raw[-BLOCK:], parse_header(raw[-BLOCK:]), records)


@given(members())
def test_every_member_comes_back_from_its_headers(member: Member) -> None:
    raw = tarformat.encode(member)
    assert len(raw) % BLOCK == 0
    assert decoded(raw) == member
    assert tarformat.encoded_size(member) == len(raw) + member.size + -member.size % BLOCK


@given(members())
def test_tarfile_reads_every_member_alike(member: Member) -> None:
    raw = tarformat.encode(member._replace(size=0)) + bytes(1024)
    with tarfile.open(fileobj=io.BytesIO(raw), errors="surrogateescape") as reader:
        (read,) = reader.getmembers()
    assert os.fsencode(read.name) == member.name
    assert read.type == member.kind
    assert read.mode == member.mode
    assert os.fsencode(read.linkname) == member.link.rstrip(b"/") or member.link.endswith(b"/")


Tree = dict[bytes, Any]
nodes = st.recursive(
    st.one_of(
        st.tuples(st.just("file"), st.binary(max_size=1500), modes),
        st.tuples(st.just("symlink"), links),
        st.tuples(st.just("fifo")),
    ),
    lambda below: st.tuples(
        st.just("directory"), st.dictionaries(st.one_of(leaves, alike), below, max_size=5), modes
    ),
    max_leaves=12,
)


def make(path: bytes, node: Any) -> None:
    """Makes a node and all below it."""
    match node:
        case ("file", body, mode):
            Path(os.fsdecode(path)).write_bytes(body)
            os.chmod(path, mode)
        case ("symlink", target):
            os.symlink(target, path)
        case ("fifo",):
            os.mkfifo(path)
        case ("directory", below, mode):
            os.mkdir(path)
            for name, each in below.items():
                make(path + b"/" + name, each)
            os.chmod(path, mode)


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory of one example's own."""
    path = Path(tempfile.mkdtemp(prefix="sandbox-runner-test-", dir="/dev/shm"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.one_of(leaves, alike), nodes, max_size=8))
def test_every_tree_comes_back(below: Tree) -> None:
    with scratch() as top:
        make(os.fsencode(top) + b"/workspace", ("directory", below, 0o755))
        archive = saved(top / "workspace")
        restored(archive, top / "staging")
        assert look(top / "staging/restored") == look(top / "workspace")
        if not any(b"fifo" in repr(node).encode() for node in below.values()):
            assert members_of(saved(top / "staging/restored")) == members_of(archive)


pieces = st.one_of(
    st.binary(max_size=1200),
    st.sampled_from(
        [
            forge.ROOT,
            forge.directory(b"session/a/"),
            forge.file(b"session/a/b", b"body"),
            forge.file(b"session/c", b"x" * 600),
            forge.hard_link(b"session/d", b"session/c"),
            forge.symlink(b"session/e", b"/etc"),
            forge.pax(forge.record(b"mtime", b"1.5")),
            forge.pax(forge.record(b"path", b"session/f")),
            forge.file(b"runner-sidecar.json", b"{}"),
            forge.END,
            bytes(BLOCK),
        ]
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(pieces, max_size=8), st.integers(1, 2000))
def test_the_reader_refuses_with_a_name_or_reads_to_the_end(parts: list[bytes], cut: int) -> None:
    tar = b"".join(parts)
    reader = ArchiveReader([tar[at : at + cut] for at in range(0, len(tar), cut)], Limits())
    seen: list[bytes] = []
    try:
        for placed in reader.members():
            seen.append(placed.member.name)
            assert sum(map(len, reader.body())) == placed.member.size
    except RunnerError as refusal:
        assert refusal.code.startswith("checkpoint_")
    else:
        assert reader.facts is not None
        assert reader.facts.entries == len(set(seen))
        assert tar.endswith(forge.END)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_mutated_archive_is_refused_or_gives_the_very_tree(data: st.DataObject) -> None:
    with scratch() as top:
        (top / "workspace/d").mkdir(parents=True)
        (top / "workspace/d/f").write_bytes(b"words and words and words" * 40)
        os.symlink("x", top / "workspace/s")
        for path in (*(top / "workspace").rglob("*"), top / "workspace"):
            os.utime(path, ns=(0, 1_700_000_000_123_456_789), follow_symlinks=False)
        archive = bytearray(saved(top / "workspace"))
        if data.draw(st.booleans()):
            archive = bytearray(gzip.decompress(archive))
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(archive) - 1))
            archive[at] = data.draw(st.integers(0, 255))
        whole = bytes(archive)
        if whole[:2] != gzipframe.HEADER[:2]:
            whole = forge.gzipped(whole)
        (top / "staging").mkdir()
        try:
            restored(whole, top / "staging")
        except RunnerError as refusal:
            assert refusal.code.startswith("checkpoint_")
            assert os.listdir(top / "staging") == []
        else:
            assert look(top / "staging/restored") == look(top / "workspace")
