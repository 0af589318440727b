"""What has to hold of every archive, for each reader.

It is refused with an error that has a name, and then nothing of it is left; or what came of it is
what `model` says, and a round trip gives the same. Nothing outside the staging directory is touched
in either case.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from runner.checkpoint.limits import Limits
from runner.checkpoint.reader import ArchiveReader
from runner.checkpoint.unpack import apply, unpack
from runner.errors import CheckpointRefused, RunnerError, TooLarge
from runner.inputs import push
from runner.workspace.tree import Tree
from tests.fuzz import model
from tests.unit.checkpoint import forge
from tests.unit.checkpoint.kit import OWNER, members_of, restored, saved

LIMITS = Limits(
    compressed_bytes=1 << 20,
    expanded_bytes=1 << 20,
    entries=1000,
    name_bytes=4096,
    sidecar_bytes=64 << 10,
    gone_bytes=4096,
)
BASE_STATE = "5" * 64
#: What a delta is applied to.
BASE = [
    forge.ROOT,
    forge.file(b"session/a", b"first"),
    forge.directory(b"session/d/"),
    forge.file(b"session/d/f", b"second"),
    forge.symlink(b"session/link", b"../../canary"),
]
_PUSHED = (b"push",)


class Room:
    """A staging directory with something beside it that must not change."""

    def __init__(self, parent: Path = Path("/dev/shm")) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="sandbox-runner-fuzz-", dir=parent))
        (self.top / "canary").mkdir()
        (self.top / "canary/file").write_bytes(b"alive")
        self.path = self.top / "staging"
        self.path.mkdir()
        self.staging = Tree.open(str(self.path))
        self.runs = self.taken = 0
        self._outside = self._look()

    def close(self) -> None:
        self.staging.close()
        shutil.rmtree(self.top)

    def run(self, data: bytes) -> None:
        """One input. Raises `AssertionError`, or whatever no reader should, when it is a find."""
        target, tar = TARGETS[data[0] % len(TARGETS)] if data else full, data[1:]
        self.runs += 1
        try:
            target(self, tar)
        except RunnerError as refusal:
            assert isinstance(refusal, CheckpointRefused | TooLarge) or refusal.status == 400, (
                refusal
            )
        else:
            self.taken += 1
        finally:
            self.staging.clear()
        assert self._look() == self._outside, "something outside of staging was touched"

    def _look(self) -> list[tuple[object, ...]]:
        seen = []
        for path in (self.top, self.top / "canary", self.top / "canary/file"):
            status = path.lstat()
            seen.append((status.st_ino, status.st_mode, status.st_ctime_ns, status.st_nlink))
        return seen


def full(room: Room, tar: bytes) -> None:
    """A full archive, as if its seal were right."""
    with room.staging.make_dir((b"r",), uid=0, gid=0) as target:
        reader = ArchiveReader(_blocks(tar), LIMITS)
        assert reader.head() is None or _refuse_head()
        unpack(reader, target, OWNER)
    there = model.found(room.path / "r")
    assert there == model.applied(tar, {})
    _round_trip(room, there)


def delta(room: Room, tar: bytes) -> None:
    """A delta, as if its seal and its chain were right."""
    base = b"".join(BASE) + forge.file(b"runner-sidecar.json", b"{}") + forge.END
    with room.staging.make_dir((b"r",), uid=0, gid=0) as target:
        unpack(ArchiveReader([base], LIMITS), target, OWNER)
        reader = ArchiveReader(_blocks(tar), LIMITS)
        head = reader.head()
        if head is None:
            return
        apply(reader, head, target, OWNER)
    there = model.found(room.path / "r")
    assert there == model.applied(tar, model.applied(base, {}))
    _round_trip(room, there)


def pushed(room: Room, tar: bytes) -> None:
    """A push of inputs."""
    room.staging.make_dir(_PUSHED, uid=0, gid=0).close()
    arrivals = push.unpack(
        [forge.gzipped(tar)],
        room.staging,
        _PUSHED,
        declared=None,
        max_bytes=1 << 20,
        make_room=lambda _: 0,
    )
    assert sorted(os.listdir(room.path / "push")) == sorted(each.key for each in arrivals)
    bodies = model.files(tar)
    for each in arrivals:
        body = (room.path / "push" / each.key).read_bytes()
        assert bodies.get(each.key, body) == body


def packed(room: Room, archive: bytes) -> None:
    """The bytes as they come, gzip and seal and all."""
    try:
        restored(archive, room.path, limits=LIMITS)
    except RunnerError:
        assert os.listdir(room.path) == []
        raise


TARGETS: tuple[Callable[[Room, bytes], None], ...] = (full, delta, pushed, packed)


def _refuse_head() -> bool:
    # What `chain` does with a delta that is no delta to anything.
    raise CheckpointRefused("a delta without its base")


def _round_trip(room: Room, there: model.Tree) -> None:
    again = saved(room.path / "r", limits=LIMITS)
    restored(again, room.path, name=b"again", limits=LIMITS)
    assert model.found(room.path / "again") == there
    assert members_of(saved(room.path / "again", limits=LIMITS)) == members_of(again)


def _blocks(tar: bytes) -> list[bytes]:
    return [tar[at : at + 1000] for at in range(0, len(tar), 1000)]
