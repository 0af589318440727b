"""The data root: the daemon's directories on one file system, and what may lie in each.

    workspace/   the session's files; the session UID's
    staging/     what is being put together before it is moved into place; root's
    inputs/      the cache of pushed inputs (`inputs.cache`); root's
    jobs/        one directory per stateless execution or build; each removed when it ends
    bases/       states that were handed out, for deltas (`checkpoint.bases`); root's
    state/       the record and the key (`session.record`), room kept aside (`reserve`); root's
    runtime/     what the jail room prepares at start; root's

Everything below is reached by descriptors (`tree`). Paths leave this module for one purpose: nsjail
is told which directory to bind.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from dataclasses import dataclass
from typing import Self

from runner.workspace.full import full_disk_is_told, is_full
from runner.workspace.quota import Quota
from runner.workspace.reserve import Reserve
from runner.workspace.tree import Tree

WORKSPACE = (b"workspace",)
STAGING = (b"staging",)
INPUTS = (b"inputs",)
JOBS = (b"jobs",)
BASES = (b"bases",)
STATE = (b"state",)
RUNTIME = (b"runtime",)
#: The jailed user's own files are its own affair, but other users of the machine get nothing.
WORKSPACE_MODE = 0o700
#: Others may pass through: the jail's mount set-up walks down to the workspace. None may list.
ROOT_MODE = 0o711
PRIVATE_MODE = 0o700


class DataRootUnusable(Exception):
    """The data root cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The session's user and group."""

    uid: int
    gid: int


class DataRoot:
    """The directories, held open by descriptor for the daemon's life. All of it blocks."""

    def __init__(
        self, path: str, top: Tree, owner: Owner, *, reserve_bytes: int, max_bytes: int | None
    ) -> None:
        self.path = path
        self.owner = owner
        self._top = top
        self.staging = top.subtree(STAGING)
        self.inputs = top.subtree(INPUTS)
        self.jobs = top.subtree(JOBS)
        self.reserve = Reserve(self.open_state(), reserve_bytes)
        self.bases = top.subtree(BASES)
        #: None: a workspace may be as large as the disk.
        self.quota: Quota | None = None
        if max_bytes is None:
            Quota.lift(top, uid=owner.uid)
        else:
            self.quota = Quota(top, uid=owner.uid, max_bytes=max_bytes)

    @classmethod
    def open(
        cls, path: str, owner: Owner, *, reserve_bytes: int = 0, max_bytes: int | None = None
    ) -> Self:
        """Makes what is missing and checks what is there; raises `DataRootUnusable`.

        `reserve_bytes` are kept aside from the first `reserve.fill` on. `max_bytes`: of one
        workspace.
        """
        try:
            os.makedirs(path, exist_ok=True)
            top = Tree.open(path)
        except OSError as error:
            raise DataRootUnusable(f"{path} cannot be made or opened") from error
        try:
            # Held until this process is gone, however it goes.
            fcntl.flock(top.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            top.close()
            raise DataRootUnusable(f"{path} is in use by another daemon") from error
        top.give_root(uid=0, gid=0, mode=ROOT_MODE)
        for parts, mode in (
            (STAGING, PRIVATE_MODE),
            (INPUTS, PRIVATE_MODE),
            (BASES, PRIVATE_MODE),
            (STATE, PRIVATE_MODE),
            (RUNTIME, PRIVATE_MODE),
            (JOBS, ROOT_MODE),
        ):
            with top.ensure_dirs(parts, uid=0, gid=0, mode=mode) as directory:
                directory.give_root(uid=0, gid=0, mode=mode)
                if directory.stat().st_dev != top.stat().st_dev:
                    top.close()
                    raise DataRootUnusable(f"{parts[0].decode()} lies on another file system")
        return cls(path, top, owner, reserve_bytes=reserve_bytes, max_bytes=max_bytes)

    def close(self) -> None:
        """Gives the descriptors back."""
        self.staging.close()
        self.inputs.close()
        self.jobs.close()
        self.reserve.close()
        self.bases.close()
        self._top.close()

    def runtime_dir(self) -> str:
        """The path of the directory that is the jail room's to fill."""
        return f"{self.path}/{RUNTIME[0].decode()}"

    def open_state(self) -> int:
        """A descriptor of the state directory for the record's store to own."""
        with self._top.subtree(STATE) as state:
            return os.dup(state.fileno())

    def sweep(self) -> None:
        """Removes what nobody works on any more. Before the first request, or behind the gate
        (`vm.gate`) and under the session's lock: everything in here is somebody's otherwise."""
        self.staging.clear()
        self.jobs.clear()

    # The workspace

    def workspace_present(self) -> bool:
        """Whether there is a directory where the workspace should be."""
        return self.workspace_inode() is not None

    def workspace_inode(self) -> int | None:
        """Which directory the workspace is; None where there is none."""
        try:
            status = self._top.stat(WORKSPACE)
        except FileNotFoundError:
            return None
        return status.st_ino if stat.S_ISDIR(status.st_mode) else None

    def mark_workspace(self) -> None:
        """It counts as changed from now on, whatever its files look like."""
        self.bases.clear()
        with self.workspace() as tree:
            tree.mark()

    def make_workspace(self) -> None:
        """Makes the workspace if it is not there. What is in it stays.

        It comes into its place whole: one that is there belongs to the session's user.
        """
        if self.workspace_present():
            return
        staged = (b"workspace-" + secrets.token_hex(8).encode(),)
        self.staging.make_dir(
            staged, uid=self.owner.uid, gid=self.owner.gid, mode=WORKSPACE_MODE
        ).close()
        self.staging.move(staged, self._top, WORKSPACE)

    def workspace(self) -> Tree:
        """The workspace as a tree that the caller closes; FileNotFoundError if it is gone."""
        return self._top.subtree(WORKSPACE)

    def wipe_workspace(self) -> None:
        """Leaves an empty workspace, whatever was there; raises OSError if it cannot."""
        self._top.remove(WORKSPACE)
        self.bases.clear()
        try:
            self.make_workspace()
        except OSError as error:
            if not is_full(error) or not self.reserve.give_up():
                raise
            self.make_workspace()

    def commit_workspace(self, staged: bytes) -> None:
        """Puts the staged tree in the workspace's place in one step.

        The old workspace is then in staging under that name, for the caller to remove once the
        record says what the new one is.
        """
        # What is known of the old one says nothing of the new one.
        self.bases.clear()
        if self.workspace_present():
            self.staging.exchange((staged,), self._top, WORKSPACE)
        else:
            self.staging.move_new((staged,), self._top, WORKSPACE)
        self._top.fsync()
        self.staging.fsync()

    # Jobs

    def make_job(self) -> str:
        """A new empty directory of the session's user; its name."""
        name = secrets.token_hex(8)
        with full_disk_is_told("there is no room for a workspace"):
            self.jobs.make_dir(
                (name.encode(),), uid=self.owner.uid, gid=self.owner.gid, mode=WORKSPACE_MODE
            ).close()
        return name

    def job(self, name: str) -> Tree:
        """A job's directory as a tree that the caller closes."""
        return self.jobs.subtree((name.encode(),))

    def remove_job(self, name: str) -> None:
        """Removes a job's directory with all that is in it."""
        self.jobs.remove((name.encode(),))

    def workspace_source(self) -> str:
        """The path that nsjail is to bind as the workspace."""
        return f"{self.path}/{WORKSPACE[0].decode()}"

    def job_source(self, name: str) -> str:
        """The path that nsjail is to bind as a job's workspace or build directory."""
        return f"{self.path}/{JOBS[0].decode()}/{name}"

    def sync(self) -> None:
        """Writes the whole file system to the disk."""
        self._top.sync()

    def free_bytes(self) -> int:
        """Bytes of the file system that are free for users other than root."""
        space = self._top.space()
        return space.f_bavail * space.f_frsize

    def free_inodes(self) -> int | None:
        """Inodes that are free; None where the file system does not count them."""
        space = self._top.space()
        return space.f_favail if space.f_files else None
