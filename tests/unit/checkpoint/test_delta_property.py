"""Full = base + deltas, over any sequence of edits."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.checkpoint.bases import KEPT_MAX
from tests.unit.checkpoint.kit import Deltas, chained, look, members_of, saved
from tests.unit.checkpoint.test_properties import scratch

#: Few names, so that edits meet: a file where a directory was, a link to what is gone.
names = st.sampled_from([b"a", b"a.", b"b", b"b\n1 2", b"\xff"])
paths = st.lists(names, min_size=1, max_size=3).map(b"/".join)
edits = st.one_of(
    st.tuples(st.just("write"), paths, st.binary(max_size=600)),
    st.tuples(st.just("overwrite"), paths, st.binary(max_size=600)),
    st.tuples(st.just("append"), paths, st.binary(max_size=20)),
    st.tuples(st.just("forge"), paths, st.binary(min_size=1, max_size=1)),
    st.tuples(st.just("mkdir"), paths),
    st.tuples(st.just("remove"), paths),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("exchange"), paths, paths),
    st.tuples(st.just("link"), paths, paths),
    st.tuples(st.just("symlink"), paths, paths),
    st.tuples(st.just("chmod"), paths, st.integers(0, 0o1777)),
    st.tuples(st.just("utime"), paths, st.integers(0, 2**60)),
    st.tuples(st.just("fifo"), paths),
    st.tuples(st.just("nothing")),
)


def edit(top: bytes, act: tuple[Any, ...]) -> None:
    """One edit as a program might make it; what cannot be done is not done."""
    name, *more = act
    at = top + b"/" + more[0] if more else top
    # A fifo would block, and what a symlink leads to is not ours.
    if name in ("write", "append", "forge") and os.path.lexists(at) and not _is_file(at):
        return
    with contextlib.suppress(OSError):
        if name in ("write", "overwrite"):
            if name == "overwrite" and os.path.lexists(at):
                _remove(at)
            os.makedirs(os.path.dirname(at), exist_ok=True)
            Path(os.fsdecode(at)).write_bytes(more[1])
        elif name == "append":
            with open(at, "ab") as file:
                file.write(more[1])
        elif name == "forge":
            _forge(at, more[1])
        elif name == "mkdir":
            os.makedirs(at)
        elif name == "remove":
            _remove(at)
        elif name == "rename":
            os.rename(at, top + b"/" + more[1])
        elif name == "exchange":
            os.rename(at, top + b"/.tmp")
            os.rename(top + b"/" + more[1], at)
            os.rename(top + b"/.tmp", top + b"/" + more[1])
        elif name == "link":
            os.link(at, top + b"/" + more[1], follow_symlinks=False)
        elif name == "symlink":
            os.symlink(more[1], at)
        elif name == "chmod":
            if not os.path.islink(at):
                os.chmod(at, more[1])
        elif name == "utime":
            os.utime(at, ns=(0, more[1]), follow_symlinks=False)
        elif name == "fifo":
            os.mkfifo(at)


def _is_file(path: bytes) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _forge(path: bytes, byte: bytes) -> None:
    """Changes a byte and puts size and mtime back."""
    status = os.stat(path)
    with open(path, "r+b") as file:
        file.write(byte[: status.st_size])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _remove(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(edits, max_size=8), min_size=2, max_size=6), st.randoms())
def test_a_base_and_its_deltas_are_the_full_archive(turns: list[Any], chance: Any) -> None:
    with scratch() as top:
        workspace = top / "workspace"
        workspace.mkdir()
        # Ballast: a delta is only sent where it is smaller.
        (workspace / "ballast").write_bytes(os.urandom(30_000))
        #: Entity tag → the archives that a client needs to get there.
        have: dict[str, list[bytes]] = {}
        with Deltas(workspace) as deltas:
            for number, turn in enumerate(turns):
                for act in turn:
                    edit(os.fsencode(workspace), act)
                base = chance.choice(list(have)) if have else ""
                tag, archive = deltas.save(base)
                # Only the last states are kept, and one that is used longer than one that is not.
                assert deltas.was_delta or len(have) >= KEPT_MAX or not have
                have[tag] = [*have[base], archive] if deltas.was_delta else [archive]
                came_back(have[tag], workspace, top / f"staging-{number}")


def came_back(archives: list[bytes], workspace: Path, staging: Path) -> None:
    chained(archives, staging)
    assert look(staging / "restored") == look(workspace)
    assert members_of(saved(staging / "restored")) == members_of(saved(workspace))
