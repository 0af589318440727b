"""`Tree`: a directory descriptor and every privileged path operation below it.

Root works here on names that the session's user can change at any moment. So nothing takes a path:
each operation takes `parts`, goes down without following a link (`descent`) and then acts on one
name in one open directory. Symlinks are seen, moved and removed, never followed.

Failures are `OSError` with the kernel's errno (ELOOP, ENOTDIR: a link or file stands in the way),
`NotRegularError` or `TooManyEntriesError`. All is synchronous; several threads may use one `Tree`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator

from runner.workspace import descent, directories, removal, syscalls, treewalk
from runner.workspace.descent import NotRegularError, Parts
from runner.workspace.treewalk import Entry, Kind, TooManyEntriesError

__all__ = ["Entry", "Kind", "NotRegularError", "Parts", "TooManyEntriesError", "Tree", "write_all"]

# What rename says when file and directory would replace each other, or a directory is not empty.
_SQUATTED = (errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Tree:
    """The directory behind a descriptor. Closes the descriptor it was given."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @staticmethod
    def open(trusted_path: str) -> Tree:
        """The root of a tree, by a path from the settings: never one from a request."""
        return Tree(os.open(trusted_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def fileno(self) -> int:
        """The descriptor, still owned by the tree."""
        return self._fd

    def close(self) -> None:
        """Closes the descriptor; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Directories

    def subtree(self, parts: Parts) -> Tree:
        """The directory at `parts` as a tree of its own; with no parts, this one once more."""
        return Tree(descent.open_dir(self._fd, parts))

    def make_dir(self, parts: Parts, *, uid: int, gid: int, mode: int = 0o755) -> Tree:
        """Makes one directory whose parent is there and whose name is free."""
        with descent.parent_of(self._fd, parts) as (fd, name):
            return Tree(directories.make(fd, name, uid, gid, mode))

    def ensure_dirs(self, parts: Parts, *, uid: int, gid: int, mode: int = 0o755) -> Tree:
        """The directory at `parts`, made where missing, as a tree that the caller closes.

        A link, file, fifo or socket on the way is removed and replaced. Directories that were there
        keep their owner and mode; those that are made get the ones given.
        """
        descent.check(parts)
        current = descent.open_dir(self._fd)
        for name in parts:
            try:
                following = directories.ensure(current, name, uid, gid, mode)
            finally:
                os.close(current)
            current = following
        return Tree(current)

    # Files

    def open_file(self, parts: Parts) -> int:
        """A reading descriptor of a regular file, else `NotRegularError`. Never blocks."""
        with descent.parent_of(self._fd, parts) as (fd, name):
            return descent.open_regular(fd, name)

    def create(self, parts: Parts) -> int:
        """A writing descriptor of a new file, root's, mode 0600; EEXIST if the name is taken."""
        with descent.parent_of(self._fd, parts) as (fd, name):
            return os.open(name, _NEW, 0o600, dir_fd=fd)

    def write_file(
        self, parts: Parts, chunks: Iterable[bytes], *, uid: int, gid: int, mode: int
    ) -> os.stat_result:
        """A new file with these bytes; removed again if not all of them could be written.

        Owner and mode come when it is whole.
        """
        with descent.parent_of(self._fd, parts) as (dir_fd, name):
            fd = os.open(name, _NEW, 0o600, dir_fd=dir_fd)
            try:
                for chunk in chunks:
                    write_all(fd, chunk)
                directories.give(fd, uid, gid, mode)
                return os.fstat(fd)
            except BaseException:
                os.unlink(name, dir_fd=dir_fd)
                raise
            finally:
                os.close(fd)

    def symlink(self, target: bytes, parts: Parts, *, uid: int, gid: int) -> None:
        """A new symlink; the target is stored, never looked at."""
        with descent.parent_of(self._fd, parts) as (fd, name):
            os.symlink(target, name, dir_fd=fd)
            os.chown(name, uid, gid, dir_fd=fd, follow_symlinks=False)

    def link(self, parts: Parts, new_parts: Parts) -> None:
        """A second name for what is at `parts`; a symlink there is linked, not followed."""
        with (
            descent.parent_of(self._fd, parts) as (fd, name),
            descent.parent_of(self._fd, new_parts) as (new_fd, new_name),
        ):
            os.link(name, new_name, src_dir_fd=fd, dst_dir_fd=new_fd, follow_symlinks=False)

    # Moving

    def move(self, parts: Parts, target: Tree, target_parts: Parts) -> None:
        """Moves the entry at `parts` into place in `target`, whatever stands there.

        A directory in the way changes places with the entry and is removed from *this* tree, where
        only root gets at it. The parent in `target` must be there (`ensure_dirs`).
        """
        with (
            descent.parent_of(self._fd, parts) as (fd, name),
            descent.parent_of(target._fd, target_parts) as (target_fd, target_name),
        ):
            for _ in range(directories.CONTEST_TRIES):
                try:
                    os.rename(name, target_name, src_dir_fd=fd, dst_dir_fd=target_fd)
                except OSError as error:
                    if error.errno not in _SQUATTED:
                        raise
                else:
                    return
                try:
                    syscalls.renameat2(fd, name, target_fd, target_name, syscalls.RENAME_EXCHANGE)
                except FileNotFoundError:
                    # The squatter left meanwhile. If it was our entry, the next rename says so.
                    continue
                removal.remove(fd, name)
                return
        raise OSError(errno.EBUSY, "the destination is being fought over")

    def move_new(self, parts: Parts, target: Tree, target_parts: Parts) -> None:
        """Moves the entry only if the name in `target` is free; EEXIST if not."""
        self._rename2(parts, target, target_parts, syscalls.RENAME_NOREPLACE)

    def exchange(self, parts: Parts, target: Tree, target_parts: Parts) -> None:
        """Two entries change places in one step: there is no moment with one of them missing."""
        self._rename2(parts, target, target_parts, syscalls.RENAME_EXCHANGE)

    def _rename2(self, parts: Parts, target: Tree, target_parts: Parts, flags: int) -> None:
        with (
            descent.parent_of(self._fd, parts) as (fd, name),
            descent.parent_of(target._fd, target_parts) as (target_fd, target_name),
        ):
            syscalls.renameat2(fd, name, target_fd, target_name, flags)

    # Removing

    def remove(self, parts: Parts) -> None:
        """Removes the entry, whatever it is, with all below it; no error if it is not there."""
        try:
            with descent.parent_of(self._fd, parts) as (fd, name):
                removal.remove(fd, name)
        except FileNotFoundError:
            # The parent is not there: neither is the entry.
            return

    def clear(self) -> None:
        """Removes everything in the tree and keeps its root."""
        removal.clear(self._fd)

    # Looking and metadata

    def walk(
        self, *, max_depth: int | None = None, max_entries: int | None = None
    ) -> Iterator[Entry]:
        """Everything below the root, sorted; see `treewalk.walk`."""
        return treewalk.walk(self._fd, max_depth=max_depth, max_entries=max_entries)

    def stat(self, parts: Parts = ()) -> os.stat_result:
        """lstat of the entry; with no parts, of the root."""
        if not parts:
            return os.fstat(self._fd)
        with descent.parent_of(self._fd, parts) as (fd, name):
            return os.stat(name, dir_fd=fd, follow_symlinks=False)

    def readlink(self, parts: Parts) -> bytes:
        """The target of a symlink."""
        with descent.parent_of(self._fd, parts) as (fd, name):
            return os.readlink(name, dir_fd=fd)

    def chown(self, parts: Parts, uid: int, gid: int) -> None:
        """Gives the entry away; a symlink itself, not its target."""
        with descent.parent_of(self._fd, parts) as (fd, name):
            os.chown(name, uid, gid, dir_fd=fd, follow_symlinks=False)

    def chmod(self, parts: Parts, mode: int) -> None:
        """Sets the mode of a file or directory, by its descriptor; ELOOP for a symlink."""
        with descent.parent_of(self._fd, parts) as (fd, name):
            entry_fd = os.open(name, descent.READ, dir_fd=fd)
        try:
            os.fchmod(entry_fd, mode)
        finally:
            os.close(entry_fd)

    def set_mtime(self, parts: Parts, mtime_ns: int) -> None:
        """Sets both times of the entry; a symlink's own."""
        with descent.parent_of(self._fd, parts) as (fd, name):
            os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=fd, follow_symlinks=False)

    def give_root(self, *, uid: int, gid: int, mode: int) -> None:
        """Owner and mode of the root itself."""
        directories.give(self._fd, uid, gid, mode)

    def mark(self) -> None:
        """Gives the root a new ctime and leaves its mode as it is."""
        os.fchmod(self._fd, stat.S_IMODE(os.fstat(self._fd).st_mode))

    def fsync(self, parts: Parts = ()) -> None:
        """Writes one file or directory to the disk; with no parts, the root."""
        if not parts:
            return os.fsync(self._fd)
        with descent.parent_of(self._fd, parts) as (fd, name):
            entry_fd = os.open(name, descent.READ, dir_fd=fd)
        try:
            os.fsync(entry_fd)
        finally:
            os.close(entry_fd)

    def sync(self) -> None:
        """Writes the whole file system of this tree to the disk."""
        syscalls.syncfs(self._fd)

    def space(self) -> os.statvfs_result:
        """Free bytes and inodes of the file system."""
        return os.fstatvfs(self._fd)


def write_all(fd: int, chunk: bytes) -> None:
    """Writes all of it: a write near a full disk may take only a part before ENOSPC comes."""
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]
