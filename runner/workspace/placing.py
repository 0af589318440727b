"""What of priming touches the disk: survey, stage and place. What to do is `priming.plan`'s."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from runner.errors import InputUnavailable
from runner.workspace import syscalls
from runner.workspace.descent import NotRegularError, Parts
from runner.workspace.fingerprint import (
    ChangedWhileReadError,
    HashCache,
    hash_file,
)
from runner.workspace.full import full_disk_is_told
from runner.workspace.paths import SafePath
from runner.workspace.priming import (
    READ_ONLY_MODE,
    WRITABLE_MODE,
    Action,
    Inline,
    Input,
    Present,
    Primed,
    Staged,
    Step,
    Stored,
    supersede,
)
from runner.workspace.stopping import NEVER, Stop
from runner.workspace.tree import Tree, write_all

_CANNOT_CLONE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY)
_COPY_BYTES = 1 << 20
_NO_FIT = "the inputs do not fit"
_RESERVE = b"reserve"


@dataclass(frozen=True, slots=True)
class Staging:
    """Files that are ready to be moved into place: step → where it is below the staging tree.

    A context manager: what was not placed is removed at the end. Files of `Staged` sources belong
    to their fetcher.
    """

    tree: Tree
    root: Parts
    ready: tuple[tuple[Step, Parts], ...]
    kept: tuple[Step, ...]

    def release(self) -> None:
        """Gives back the room that was reserved for `place`, right before it."""
        self.tree.remove((*self.root, _RESERVE))

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.tree.remove(self.root)


@dataclass(frozen=True, slots=True)
class Placed:
    """`primed` is the whole new record. `written` and `kept` are `str(path)`, sorted.

    What was surfaced at a written path is no longer there: the caller drops it.
    """

    primed: Mapping[str, Primed]
    written: tuple[str, ...]
    kept: tuple[str, ...]


def survey(
    workspace: Tree,
    inputs: Iterable[Input],
    primed: Mapping[str, Primed],
    cache: HashCache,
    stop: Stop = NEVER,
) -> dict[SafePath, Present]:
    """What stands at the destinations. Reads a file only where its bytes decide something."""
    found: dict[SafePath, Present] = {}
    for each in inputs:
        present = _look(workspace, each, primed.get(str(each.path)), cache, stop)
        if present is not None:
            found[each.path] = present
    return found


def _look(
    workspace: Tree, wanted: Input, before: Primed | None, cache: HashCache, stop: Stop
) -> Present | None:
    try:
        fd = workspace.open_file(wanted.path.parts)
    except OSError:
        # Nothing, a link, a fifo or a file with a lease: nothing that could be kept.
        return None
    try:
        status = os.fstat(fd)
        mode = stat.S_IMODE(status.st_mode)
        sealed = (status.st_uid, status.st_gid, mode) == (0, 0, READ_ONLY_MODE)
        source = wanted.source
        known = before is not None and before.sha256 == source.sha256 and not wanted.read_only
        if known or status.st_size != source.size or wanted.read_only != sealed:
            return Present(None, sealed)
        parts = wanted.path.parts
        sha256 = cache.get(parts, status)
        if sha256 is None:
            hashed = hash_file(fd, stop=stop)
            cache.put(parts, hashed)
            sha256 = hashed.sha256
        return Present(sha256, sealed)
    except ChangedWhileReadError:
        return Present(None, sealed)
    finally:
        os.close(fd)


def stage(
    staging: Tree, steps: Sequence[Step], *, uid: int, gid: int, stop: Stop = NEVER
) -> Staging:
    """Writes what is to be placed below the root-only `staging`, with its final owner and mode.

    Raises `InsufficientStorage` when the disk is full and `InputUnavailable` when a source is gone
    or is not the bytes it was said to be; `Stopped` soon after `stop` is asked. The workspace has
    not been touched then.
    """
    root = (b"prime-" + secrets.token_hex(8).encode(),)
    ready: list[tuple[Step, Parts]] = []
    kept: list[Step] = []
    with full_disk_is_told(_NO_FIT):
        staging.make_dir(root, uid=0, gid=0, mode=0o700).close()
        try:
            _reserve(staging, root, steps)
            for number, step in enumerate(steps):
                if step.action is Action.KEEP:
                    kept.append(step)
                    continue
                target = (*root, b"%d" % number)
                _stage_one(staging, step, target, uid, gid, stop)
                ready.append((step, target))
        except BaseException:
            staging.remove(root)
            raise
    return Staging(staging, root, tuple(ready), tuple(kept))


def _reserve(staging: Tree, root: Parts, steps: Iterable[Step]) -> None:
    """Takes the room that `place` may need for parent directories, while all can still be undone.

    One directory for each that may have to be made, and one for each that may have to grow.
    """
    parents = {step.input.path.parent for step in steps if step.action is not Action.KEEP}
    missing = {parent[:depth] for parent in parents for depth in range(1, len(parent) + 1)}
    for number in range(len(missing) + len(parents)):
        parts = (*root, _RESERVE, b"%d" % number)
        staging.ensure_dirs(parts, uid=0, gid=0, mode=0o700).close()


def _stage_one(staging: Tree, step: Step, target: Parts, uid: int, gid: int, stop: Stop) -> None:
    own_uid, own_gid, mode = (
        (0, 0, READ_ONLY_MODE) if step.input.read_only else (uid, gid, WRITABLE_MODE)
    )
    source = step.input.source
    match source:
        case Inline():
            staging.write_file(target, (source.content,), uid=own_uid, gid=own_gid, mode=mode)
        case Staged():
            with _unavailable(step.input):
                staging.move_new(source.parts, staging, target)
        case Stored():
            with _unavailable(step.input):
                stored_fd = source.tree.open_file(source.parts)
            try:
                copy_fd = staging.create(target)
                try:
                    if _copy(stored_fd, copy_fd, stop) != step.sha256:
                        raise _gone(step.input)
                finally:
                    os.close(copy_fd)
            finally:
                os.close(stored_fd)
    staging.chown(target, own_uid, own_gid)
    staging.chmod(target, mode)


def _copy(source_fd: int, target_fd: int, stop: Stop) -> str:
    """Clones or copies a file; the hash (hex) of what the copy now holds."""
    try:
        syscalls.clone_file(source_fd, target_fd)
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
        write = True
    else:
        write = False
    digest = hashlib.sha256()
    offset = 0
    while chunk := os.pread(source_fd, _COPY_BYTES, offset):
        stop.check()
        digest.update(chunk)
        offset += len(chunk)
        if write:
            write_all(target_fd, chunk)
    return digest.hexdigest()


def place(
    workspace: Tree,
    staging: Staging,
    primed: Mapping[str, Primed],
    *,
    uid: int,
    gid: int,
) -> Placed:
    """Moves everything into place. The caller has called `release`, then marked the session dirty,
    and clears that after.

    Whatever stands at a destination, or as a link or file where a parent directory should be, is
    removed, never followed.
    """
    with full_disk_is_told(_NO_FIT):
        for step, staged in staging.ready:
            path = step.input.path
            with workspace.ensure_dirs(path.parent, uid=uid, gid=gid) as parent:
                staging.tree.move(staged, parent, (path.name,))
    done = [step for step, _ in staging.ready]
    return Placed(
        primed=supersede(primed, [*staging.kept, *done]),
        written=tuple(sorted(str(step.input.path) for step in done)),
        kept=tuple(sorted(str(step.input.path) for step in staging.kept)),
    )


def _gone(wanted: Input) -> InputUnavailable:
    return InputUnavailable("its bytes are not there", field=str(wanted.path))


@contextmanager
def _unavailable(wanted: Input) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotRegularError) as error:
        raise _gone(wanted) from error
