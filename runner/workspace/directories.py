"""Making directories where someone else may be putting things at the same time."""

from __future__ import annotations

import contextlib
import errno
import os

from runner.workspace import descent

#: How often a name is fought for with someone who keeps putting something else there.
CONTEST_TRIES = 1000


def make(dir_fd: int, name: bytes, uid: int, gid: int, mode: int) -> int:
    """Makes a directory whose name is free; its descriptor."""
    # 0700 and root's until it is whole: nobody gets in before it has its owner.
    os.mkdir(name, 0o700, dir_fd=dir_fd)
    try:
        fd = os.open(name, descent.DIRECTORY, dir_fd=dir_fd)
        try:
            give(fd, uid, gid, mode)
        except BaseException:
            os.close(fd)
            raise
    except BaseException:
        # One that is nobody's would be in the way. Whatever else stands there by now is not empty.
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=dir_fd)
        raise
    return fd


def ensure(dir_fd: int, name: bytes, uid: int, gid: int, mode: int) -> int:
    """The descriptor of the directory `name`, made if it is missing, freed of what squats there."""
    for _ in range(CONTEST_TRIES):
        try:
            return os.open(name, descent.DIRECTORY, dir_fd=dir_fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in descent.NOT_A_DIRECTORY:
                raise
            _unlink_squatter(dir_fd, name)
        try:
            return make(dir_fd, name, uid, gid, mode)
        except OSError as error:
            # Someone was faster: EEXIST, or what we made was swapped before we opened it.
            if error.errno not in (errno.EEXIST, errno.ENOENT, *descent.NOT_A_DIRECTORY):
                raise
    raise OSError(errno.EBUSY, "the directory is being fought over")


def _unlink_squatter(dir_fd: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=dir_fd)
    except (FileNotFoundError, IsADirectoryError):
        # Gone, or a directory by now: the next try sees what it is.
        return


def give(fd: int, uid: int, gid: int, mode: int) -> None:
    """Owner and mode of an open file or directory."""
    # chown clears set-id bits, so the mode comes after it.
    os.fchown(fd, uid, gid)
    os.fchmod(fd, mode)
