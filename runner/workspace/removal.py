"""Removing trees of any depth and width that someone else may still be changing.

Nothing recurses and no path is built: a directory found inside a directory is renamed up to the top
of the tree that is being removed, so that all work is one level deep. Memory does not grow with the
tree. Only names below the given descriptor are touched; a mount point is refused, not entered.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time

from runner.workspace import descent, syscalls

#: Above this something keeps filling the tree while it is being removed. 10 million files take
#: about two minutes.
REMOVE_SECONDS_MAX = 600.0
# A full disk has no room for a name in the top directory: the work then goes one level down,
# which a tree can force this often at most.
_NO_ROOM_DEPTH_MAX = 64
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMLINK)
_IS_DIRECTORY = (errno.EISDIR, errno.EPERM)


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        if time.monotonic() > self._end:
            raise OSError(errno.EBUSY, "the tree is being filled while it is removed")


def remove(dir_fd: int, name: bytes, *, seconds: float = REMOVE_SECONDS_MAX) -> None:
    """Removes the entry and all below it. An entry that is not there is no error."""
    deadline = _Deadline(seconds)
    while not _remove_simple(dir_fd, name):
        deadline.check()
        _empty_child(dir_fd, name, deadline)


def clear(dir_fd: int, *, seconds: float = REMOVE_SECONDS_MAX) -> None:
    """Removes all that is in the directory and keeps the directory."""
    _empty(dir_fd, _Deadline(seconds), 0)


def _empty_child(dir_fd: int, name: bytes, deadline: _Deadline, depth: int = 0) -> None:
    try:
        fd = descent.open_dir(dir_fd, (name,), one_file_system=True)
    except OSError as error:
        if error.errno in (errno.ENOENT, *descent.NOT_A_DIRECTORY):
            return
        raise
    try:
        _empty(fd, deadline, depth)
    finally:
        os.close(fd)


def _empty(top_fd: int, deadline: _Deadline, depth: int) -> None:
    """Scans until a scan finds nothing: what is moved up may be seen only by the next."""
    if depth > _NO_ROOM_DEPTH_MAX:
        raise OSError(errno.ENOSPC, "no room to take the tree apart")
    while True:
        deadline.check()
        scan_fd = descent.open_dir(top_fd)
        found = False
        try:
            with os.scandir(scan_fd) as scan:
                for entry in scan:
                    found = True
                    name = os.fsencode(entry.name)
                    if not _remove_simple(top_fd, name):
                        _take_apart(top_fd, name, deadline, depth)
        finally:
            os.close(scan_fd)
        if not found:
            return


def _take_apart(top_fd: int, name: bytes, deadline: _Deadline, depth: int) -> None:
    """Removes the directory `name` of the top, after what it holds was removed or moved up."""
    try:
        fd = descent.open_dir(top_fd, (name,), one_file_system=True)
    except OSError as error:
        if error.errno in (errno.ENOENT, *descent.NOT_A_DIRECTORY):
            return
        raise
    try:
        with os.scandir(fd) as scan:
            for entry in scan:
                deadline.check()
                inner = os.fsencode(entry.name)
                if not _remove_simple(fd, inner):
                    _move_up(fd, inner, top_fd, deadline, depth)
    finally:
        os.close(fd)
    # Not empty is no error: someone filled it again, and the next scan of the top finds it.
    _remove_simple(top_fd, name)


def _move_up(fd: int, inner: bytes, top_fd: int, deadline: _Deadline, depth: int) -> None:
    fresh = b".removing-" + secrets.token_hex(16).encode()
    for attempt in (1, 2):
        try:
            os.rename(inner, fresh, src_dir_fd=fd, dst_dir_fd=top_fd)
        except FileNotFoundError:
            return
        except PermissionError:
            if attempt == 2 or not _unprotect(fd, inner):
                raise
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            _empty_child(fd, inner, deadline, depth + 1)
            _remove_simple(fd, inner)
            return
        else:
            return


def _remove_simple(dir_fd: int, name: bytes) -> bool:
    """Unlinks what is no directory, or removes an empty directory; False if it is a full one."""
    for attempt in (1, 2):
        try:
            return _unlink_or_rmdir(dir_fd, name)
        except PermissionError:
            # root is refused only by chattr +i or +a, on the entry or on its directory.
            if attempt == 2 or not _unprotect(dir_fd, name):
                raise
    return False


def _unlink_or_rmdir(dir_fd: int, name: bytes) -> bool:
    try:
        os.unlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        # Linux says EISDIR for a directory, POSIX allows EPERM.
        if error.errno not in _IS_DIRECTORY:
            raise
        if error.errno == errno.EPERM and not _is_dir(dir_fd, name):
            raise
    else:
        return True
    try:
        os.rmdir(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        # ENOTDIR: swapped for a file since; the next look unlinks it.
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


def _is_dir(dir_fd: int, name: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _unprotect(dir_fd: int, name: bytes) -> bool:
    """Clears +i and +a on the entry and on its directory; whether that changed anything."""
    changed = syscalls.clear_protection(dir_fd)
    try:
        fd = os.open(name, descent.READ, dir_fd=dir_fd)
    except OSError:
        # A link, a socket or gone: it cannot carry the flags.
        return changed
    try:
        return syscalls.clear_protection(fd) or changed
    finally:
        os.close(fd)
