"""Opening things below a directory descriptor without ever following a link.

Two ways to the same promise: openat2 with RESOLVE_BENEATH | NO_SYMLINKS | NO_MAGICLINKS where the
kernel has it, a walk with O_NOFOLLOW one component at a time where it has not.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from runner.workspace import syscalls

#: The components of a path below some directory. Never `.`, `..`, empty, or with a slash or NUL.
Parts = tuple[bytes, ...]

#: How a directory is opened. O_NOFOLLOW guards the last component, the descent the others.
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: How a file of untrusted type is opened: a fifo, or a file with a lease on it, must not block us.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: What is not at such a path, whatever the hostile side put there instead.
NOT_A_DIRECTORY = (errno.ELOOP, errno.ENOTDIR)

_RESOLVE = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
# PATH_MAX is 4096 with the NUL: a deeper path is opened in several hops.
_HOP_BYTES_MAX = 4000


class NotRegularError(OSError):
    """What stands at the path is not a regular file."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, "not a regular file")


def check(parts: Parts) -> None:
    """Refuses components that are not plain: a second lock behind `SafePath`."""
    for part in parts:
        if part in (b"", b".", b"..") or b"/" in part or b"\x00" in part:
            raise ValueError("a path component is not plain")


def open_dir(root_fd: int, parts: Parts = (), *, one_file_system: bool = False) -> int:
    """A new descriptor of the directory at `parts` below `root_fd`; the caller closes it.

    With no parts it is a second description of the root itself: scanning one moves an offset that
    all holders of the description share.
    """
    check(parts)
    if not parts:
        return os.open(b".", DIRECTORY, dir_fd=root_fd)
    current = root_fd
    try:
        for hop in _hops(parts):
            following = _open_hop(current, hop, one_file_system=one_file_system)
            if current != root_fd:
                os.close(current)
            current = following
    except BaseException:
        if current != root_fd:
            os.close(current)
        raise
    return current


def _hops(parts: Parts) -> Iterator[Parts]:
    """Cuts a path into pieces that fit PATH_MAX."""
    start, length = 0, 0
    for index, part in enumerate(parts):
        if length + len(part) + 1 > _HOP_BYTES_MAX:
            yield parts[start:index]
            start, length = index, 0
        length += len(part) + 1
    yield parts[start:]


def _open_hop(dir_fd: int, parts: Parts, *, one_file_system: bool) -> int:
    if syscalls.has_openat2():
        extra = syscalls.RESOLVE_NO_XDEV if one_file_system else 0
        return syscalls.openat2(dir_fd, b"/".join(parts), DIRECTORY, _RESOLVE | extra)
    return _walk_hop(dir_fd, parts, one_file_system=one_file_system)


def _walk_hop(dir_fd: int, parts: Parts, *, one_file_system: bool) -> int:
    """The same without openat2. A bind mount of the same file system is not noticed here."""
    current = dir_fd
    for part in parts:
        try:
            following = os.open(part, DIRECTORY, dir_fd=current)
        finally:
            if current != dir_fd:
                os.close(current)
        current = following
    if one_file_system and os.fstat(current).st_dev != os.fstat(dir_fd).st_dev:
        os.close(current)
        raise OSError(errno.EXDEV, "a mount point")
    return current


@contextmanager
def parent_of(root_fd: int, parts: Parts) -> Iterator[tuple[int, bytes]]:
    """The descriptor of the directory that holds the entry at `parts`, and the entry's name."""
    check(parts)
    if len(parts) == 1:
        yield root_fd, parts[0]
        return
    parent = open_dir(root_fd, parts[:-1])
    try:
        yield parent, parts[-1]
    finally:
        os.close(parent)


def open_regular(dir_fd: int, name: bytes) -> int:
    """A reading descriptor of the regular file `name`; `NotRegularError` for anything else.

    Never blocks and never follows. The caller closes it.
    """
    try:
        fd = os.open(name, READ, dir_fd=dir_fd)
    except OSError as error:
        # A symlink is ELOOP, a socket ENXIO.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotRegularError from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotRegularError
    return fd
