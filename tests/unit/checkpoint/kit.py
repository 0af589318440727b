"""Saving and restoring real directories in a line, and looking at what came of it."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.checkpoint import inventory
from runner.checkpoint.bases import Bases
from runner.checkpoint.chain import Chain, Expected, Restored
from runner.checkpoint.handover import Handover
from runner.checkpoint.limits import CHUNK, Limits
from runner.checkpoint.restore import restore
from runner.checkpoint.save import save
from runner.checkpoint.sidecar import Sidecar, SidecarFacts
from runner.workspace.dataroot import Owner
from runner.workspace.priming import Primed
from runner.workspace.tree import Tree

KEY = bytes(range(32))
SESSION = "session-1"
OWNER = Owner(200000, 200001)
LIMITS = Limits()


def facts(**changes: Any) -> SidecarFacts:
    """What a session would say."""
    said: dict[str, Any] = {
        "session": SESSION,
        "incarnation": "inc_1",
        "created_at": "2026-01-02T03:04:05Z",
        "primed": {},
        "surfaced": {},
    }
    return SidecarFacts(**said | changes)


def primed(*, read_only: bool = False) -> Primed:
    """An input that was put somewhere."""
    return Primed(sha256="ab" * 32, read_only=read_only, input_id="file-1")


def saved(
    workspace: Path, said: SidecarFacts | None = None, *, key: bytes = KEY, limits: Limits = LIMITS
) -> bytes:
    """The archive of a directory."""
    with Tree.open(str(workspace)) as tree:
        planned = inventory.plan(tree, limits)
        return b"".join(save(tree, said or facts(), planned, key=key, limits=limits))


def fed(archive: bytes, size: int = CHUNK) -> Handover:
    """The archive in a hand-over, all of it at once."""
    pieces = [archive[start : start + size] for start in range(0, len(archive), size)]
    handover = Handover(len(pieces))
    for piece in pieces:
        handover.put(piece)
    handover.end()
    return handover


def restored(
    archive: bytes,
    staging: Path,
    *,
    name: bytes = b"restored",
    key: bytes = KEY,
    session: str = SESSION,
    limits: Limits = LIMITS,
) -> Sidecar:
    """Unpacks as `name` in `staging`, which is made."""
    staging.mkdir(exist_ok=True)
    expected = Expected(session=session, key=key, owner=OWNER, limits=limits)
    with Tree.open(str(staging)) as tree:
        return restore(fed(archive), tree, name, expected)


def members_of(archive: bytes) -> bytes:
    """The tar bytes before the sidecar: what does not depend on the disk it was saved from."""
    tar = gzip.decompress(archive)
    return tar[: tar.rindex(b"runner-sidecar.json\0")]


def look(top: Path) -> dict[bytes, tuple[Any, ...]]:
    """Everything of a tree that a checkpoint carries: kind, mode, time, bytes, which are one."""
    seen: dict[bytes, tuple[Any, ...]] = {}
    names: dict[int, bytes] = {}
    for path, status in _walk(os.fsencode(top)):
        relative = path[len(os.fsencode(top)) :]
        mode = stat.S_IMODE(status.st_mode) & 0o1777
        if stat.S_ISREG(status.st_mode):
            first = names.setdefault(status.st_ino, relative)
            content = Path(os.fsdecode(path)).read_bytes()
            seen[relative] = ("file", mode, status.st_mtime_ns, content, first)
        elif stat.S_ISLNK(status.st_mode):
            seen[relative] = ("symlink", status.st_mtime_ns, os.readlink(path))
        elif stat.S_ISDIR(status.st_mode):
            seen[relative] = ("directory", mode, status.st_mtime_ns)
    return seen


def owners(top: Path) -> set[tuple[int, int]]:
    """Every owner there is in a tree."""
    return {(status.st_uid, status.st_gid) for _, status in _walk(os.fsencode(top))}


def _walk(top: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """In the order of names, so that of several names of one file the same is the first."""
    status = os.lstat(top)
    yield top, status
    if stat.S_ISDIR(status.st_mode):
        for name in sorted(os.listdir(top)):
            yield from _walk(top + b"/" + name)


class Deltas:
    """Saves of one directory as its daemon would hand them out, each a delta where it can be."""

    def __init__(self, workspace: Path, *, key: bytes = KEY, incarnation: str = "inc_1") -> None:
        root = workspace.parent
        for name in ("bases", "scratch"):
            (root / name).mkdir(exist_ok=True)
        self.workspace = workspace
        self._said = facts(incarnation=incarnation)
        self._key = key
        self._trees = [Tree.open(str(root / name)) for name in ("bases", "scratch")]
        self.bases = Bases(*self._trees, key=key, incarnation=incarnation)
        self.planned: inventory.Plan | None = None

    def __enter__(self) -> Deltas:
        return self

    def __exit__(self, *_: object) -> None:
        for tree in self._trees:
            tree.close()

    def save(self, *tags: str, limits: Limits = LIMITS) -> tuple[str, bytes]:
        """The entity tag and the archive; `tags` are those that the client has."""
        with Tree.open(str(self.workspace)) as tree:
            self.planned = inventory.plan(tree, limits, self.bases.find(tags))
            tag = self.planned.etag(self._said)
            keeping = self.bases.keep(tag, self.planned.state)
            chunks = save(
                tree, self._said, self.planned, key=self._key, limits=limits, keeping=keeping
            )
            archive = b"".join(chunks)
            assert os.listdir(self.workspace.parent / "scratch") == []
            return tag, archive

    @property
    def was_delta(self) -> bool:
        """Whether the last save was one."""
        return self.planned is not None and self.planned.delta is not None


def chained(
    archives: list[bytes],
    staging: Path,
    *,
    key: bytes = KEY,
    session: str = SESSION,
    limits: Limits = LIMITS,
) -> Restored:
    """Unpacks a chain as `restored` in `staging`, which is made."""
    staging.mkdir(exist_ok=True)
    expected = Expected(session=session, key=key, owner=OWNER, limits=limits)
    with Tree.open(str(staging)) as tree:
        chain = Chain(tree, b"restored", expected)
        for archive in archives:
            chain.take(fed(archive))
        return chain.complete()
