"""One file of the workspace put or deleted from outside: by one rename or unlink, no link followed.

Unlike priming this removes nothing that stands in the way: what is there is the user's work.
The caller holds the session. A terminal's programs may still race with it: then what they put in
the way is theirs to lose, and no link of theirs is followed. All of it blocks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from runner.errors import InvalidPath, NotFound
from runner.workspace.descent import Parts
from runner.workspace.fingerprint import Fingerprint
from runner.workspace.paths import SafePath
from runner.workspace.priming import WRITABLE_MODE
from runner.workspace.tree import Tree

_PERMISSIONS = 0o777

#: Is told the status of what stands at the path (None: nothing) and raises what forbids the edit.
Precondition = Callable[[os.stat_result | None], None]


@dataclass(frozen=True, slots=True)
class Edited:
    """The file as it is now. `created`: there was none before."""

    status: os.stat_result
    created: bool


def entity_tag(status: os.stat_result) -> str:
    """A strong entity tag of one regular file (RFC 9110 section 8.8.3): ctime cannot be forged."""
    found = Fingerprint.of(status)
    return f'"{found.ino:x}-{found.ctime_ns:x}-{found.size:x}"'


def put(
    workspace: Tree,
    path: SafePath,
    staging: Tree,
    staged: Parts,
    *,
    uid: int,
    gid: int,
    precondition: Precondition,
) -> Edited:
    """Moves the staged file to `path`. Permissions of a file that it replaces are kept."""
    there = _look(workspace, path)
    precondition(there)
    replaces = there is not None and stat.S_ISREG(there.st_mode)
    mode = stat.S_IMODE(there.st_mode) & _PERMISSIONS if there and replaces else WRITABLE_MODE
    staging.chown(staged, uid, gid)
    staging.chmod(staged, mode)
    if there is not None or not _move_with_parents(workspace, path, staging, staged, uid, gid):
        with workspace.ensure_dirs(path.parent, uid=uid, gid=gid) as parent:
            staging.move(staged, parent, (path.name,))
    return Edited(workspace.stat(path.parts), created=there is None)


def _move_with_parents(
    workspace: Tree, path: SafePath, staging: Tree, staged: Parts, uid: int, gid: int
) -> bool:
    """Moves the file in together with the directories that are missing, in one step.

    False, and nothing has changed, if none is missing or a terminal's program put something there.
    """
    depth = 0
    while depth < len(path.parent) and _is_directory(workspace, path.parts[: depth + 1]):
        depth += 1
    if depth == len(path.parent):
        return False
    root = (staged[0] + b".parents",)
    above = (*root, *path.parent[depth:])
    try:
        staging.make_dir(root, uid=0, gid=0, mode=0o700).close()
        staging.ensure_dirs(above, uid=uid, gid=gid).close()
        staging.move_new(staged, staging, (*above, path.name))
        try:
            staging.move_new(above[:2], workspace, path.parts[: depth + 1])
        except (FileExistsError, FileNotFoundError, NotADirectoryError):
            staging.move_new((*above, path.name), staging, staged)
            return False
    finally:
        staging.remove(root)
    return True


def _is_directory(workspace: Tree, parts: Parts) -> bool:
    try:
        return stat.S_ISDIR(workspace.stat(parts).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def delete(
    workspace: Tree,
    path: SafePath,
    *,
    precondition: Precondition,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Removes the file at `path`, or the link itself; never a directory.

    `before` is called when it is sure that it will be.
    """
    there = _look(workspace, path)
    precondition(there)
    if there is None:
        raise NotFound("there is no file of that name")
    before()
    workspace.remove(path.parts)


def _look(workspace: Tree, path: SafePath) -> os.stat_result | None:
    """What stands at the path, if only directories lead there."""
    for depth in range(1, len(path.parts) + 1):
        try:
            status = workspace.stat(path.parts[:depth])
        except FileNotFoundError:
            return None
        is_directory = stat.S_ISDIR(status.st_mode)
        if depth == len(path.parts):
            if is_directory:
                raise InvalidPath("it is a directory", field="path", reason="is_a_directory")
            return status
        if not is_directory:
            raise InvalidPath("it leads through a file", field="path", reason="not_a_directory")
    return None
