"""A process of the session swaps links and directories while root works in its workspace.

Each race runs against a real process of the session's user that does nothing else. The control
shows that the race is one: a path-based write does end up outside.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.workspace import syscalls
from runner.workspace.collecting import collect
from runner.workspace.fingerprint import ChangedWhileReadError, HashCache
from runner.workspace.outputs import Caps, read_bounded
from runner.workspace.paths import SafePath
from runner.workspace.placing import place, stage, survey
from runner.workspace.priming import Inline, Input, plan
from runner.workspace.tree import Tree

UID = GID = 200000
SECRET = b"the secret of the host"
ROUNDS = 2_000


@dataclass(frozen=True)
class Arena:
    """`outside` holds a secret and may be written by root alone; nothing in it may change."""

    root: Path
    workspace: Tree
    staging: Tree

    @property
    def data(self) -> Path:
        return self.root / "workspace"

    @property
    def outside(self) -> Path:
        return self.root / "outside"


def state_of(outside: Path) -> list[tuple[object, ...]]:
    found = []
    for path in [outside, *sorted(outside.rglob("*"))]:
        status = path.lstat()
        found.append((path, status.st_uid, status.st_mode, status.st_size, status.st_ctime_ns))
    return found


@pytest.fixture(params=["openat2", "walk"])
def arena(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    if request.param == "walk":
        monkeypatch.setattr(syscalls, "has_openat2", lambda: False)
    root = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="arena-"))
    root.chmod(0o755)
    (root / "outside/e").mkdir(parents=True)
    for name in ("f", "e/f"):
        (root / "outside" / name).write_bytes(SECRET)
    before = state_of(root / "outside")
    with Tree.open(str(root)) as top:
        workspace = top.make_dir((b"workspace",), uid=UID, gid=GID)
        staging = top.make_dir((b"staging",), uid=0, gid=0, mode=0o700)
        with workspace, staging:
            yield Arena(root, workspace, staging)
            assert state_of(root / "outside") == before, "something outside was touched"
        top.clear()
    shutil.rmtree(root)


@contextlib.contextmanager
def hostile(step: Callable[[], None]) -> Iterator[None]:
    """Runs `step` again and again in a process of the session's user."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(GID, GID, GID)
            os.setresuid(UID, UID, UID)
            # Gone by itself if the test is killed.
            end = time.monotonic() + 60
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    step()
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def swapping(arena: Arena, name: str, target: Path) -> Callable[[], None]:
    """Exchanges `name` with a symlink to `target`, both of which it makes again when they go."""
    here, away = os.fsencode(arena.data / name), os.fsencode(arena.data / f"{name}.away")

    def step() -> None:
        try:
            syscalls.renameat2(-100, here, -100, away, syscalls.RENAME_EXCHANGE)
        except OSError:
            for path in (here, away):
                with contextlib.suppress(OSError):
                    os.symlink(target, path)
            raise

    return step


def one_input(name: str, number: int, *, read_only: bool = False) -> Input:
    return Input(SafePath.parse(name), Inline(b"%d" % number), read_only)


def put(arena: Arena, name: str, content: bytes = b"inside") -> None:
    path = arena.data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    for each in (path, *path.parents):
        if each == arena.data:
            break
        os.chown(each, UID, GID)


def test_control_a_path_based_write_is_led_outside(arena: Arena) -> None:
    (arena.root / "trap").mkdir()
    put(arena, "d/x")
    led_out = False
    with hostile(swapping(arena, "d", arena.root / "trap")):
        end = time.monotonic() + 20
        while not led_out and time.monotonic() < end:
            with contextlib.suppress(OSError):
                (arena.data / "d/f").write_bytes(b"x")
            led_out = (arena.root / "trap/f").exists()
    assert led_out


@pytest.mark.parametrize("name", ["d/f", "d/e/f", "f"])
def test_priming_never_writes_outside(arena: Arena, name: str) -> None:
    first = name.split("/", maxsplit=1)[0]
    target = arena.outside / "f" if name == "f" else arena.outside
    put(arena, "d.away/e/x")
    placed = 0
    with hostile(swapping(arena, first, target)):
        for number in range(ROUNDS):
            inputs = [one_input(name, number, read_only=bool(number % 2))]
            there = survey(arena.workspace, inputs, {}, HashCache())
            staging = stage(arena.staging, plan(inputs, {}, there), uid=UID, gid=GID)
            try:
                placed += len(place(arena.workspace, staging, {}, uid=UID, gid=GID).written)
            except OSError:
                # The race may end in "no": never in a file outside.
                staging.discard()
    assert placed > ROUNDS / 2


@pytest.mark.parametrize("flipped", ["d", "f"])
def test_outputs_never_read_outside(arena: Arena, flipped: str) -> None:
    put(arena, "d/f")
    put(arena, "d/e/f")
    put(arena, "f")
    target = arena.outside if flipped == "d" else arena.outside / "f"
    secret, inside = hashlib.sha256(SECRET).hexdigest(), hashlib.sha256(b"inside").hexdigest()
    reads = 0
    with hostile(swapping(arena, flipped, target)):
        for _ in range(ROUNDS):
            found = collect(arena.workspace, {}, {}, cache=HashCache(), caps=Caps())
            hashes = {each.sha256 for each in found.files}
            assert secret not in hashes and hashes <= {inside}
            for name in ("d/f", "d/e/f", "f"):
                # Asks for the secret by its very hash: nothing else stands in the way.
                with pytest.raises(ChangedWhileReadError):
                    read_bounded(
                        arena.workspace, SafePath.parse(name), size=len(SECRET), sha256=secret
                    )
                with contextlib.suppress(ChangedWhileReadError):
                    path = SafePath.parse(name)
                    reads += bool(read_bounded(arena.workspace, path, size=6, sha256=inside))
    assert reads > 0


def test_a_file_flipped_with_a_fifo_never_blocks(arena: Arena) -> None:
    put(arena, "f")
    fifo = arena.data / "f.away"
    os.mkfifo(fifo)
    os.chown(fifo, UID, GID)
    with hostile(swapping(arena, "f", arena.outside)):
        for _ in range(ROUNDS):
            collect(arena.workspace, {}, {}, cache=HashCache(), caps=Caps())
            with contextlib.suppress(OSError):
                os.close(arena.workspace.open_file((b"f",)))


def test_removing_never_reaches_outside(arena: Arena) -> None:
    def step() -> None:
        """Fills a deep tree and swaps its directories with links to the outside."""
        base = arena.data / "d"
        with contextlib.suppress(OSError):
            (base / "e/g").mkdir(parents=True)
            (base / "e/f").touch()
            (base / "l").symlink_to(arena.outside)
        paths = [os.fsencode(base / each) for each in ("e", "l")]
        syscalls.renameat2(-100, paths[0], -100, paths[1], syscalls.RENAME_EXCHANGE)

    with hostile(step):
        end = time.monotonic() + 2
        while time.monotonic() < end:
            arena.workspace.remove((b"d",))
            arena.workspace.clear()


def test_metadata_is_never_changed_outside(arena: Arena) -> None:
    put(arena, "d/f")
    put(arena, "d/e/f")
    done = 0
    with hostile(swapping(arena, "d", arena.outside)):
        for _ in range(ROUNDS):
            for parts in ((b"d", b"f"), (b"d", b"e", b"f"), (b"d",)):
                for change in (
                    lambda parts=parts: arena.workspace.chown(parts, UID, GID),
                    lambda parts=parts: arena.workspace.chmod(parts, 0o755),
                    lambda parts=parts: arena.workspace.set_mtime(parts, 1),
                ):
                    with contextlib.suppress(OSError):
                        change()
                        done += 1
    assert done > 0


def test_the_walk_never_leaves_the_workspace(arena: Arena) -> None:
    put(arena, "d/e/f")
    put(arena, "d/f")
    outside = {path.stat().st_ino for path in [arena.outside, *arena.outside.rglob("*")]}
    with hostile(swapping(arena, "d", arena.outside)):
        for _ in range(ROUNDS):
            for entry in arena.workspace.walk():
                assert entry.stat.st_ino not in outside
