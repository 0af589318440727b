"""The system calls that Python lacks, each in a few lines. The policy is in `descent` and `tree`.

`_checked` is the one place where errno becomes an `OSError`. `use_errno` keeps a copy of errno per
thread, and ctypes drops the GIL during a call: everything here may be called from any thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from functools import cache

# include/uapi/linux/openat2.h
RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

# include/uapi/linux/fs.h
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
_FICLONE = 0x40049409
_FS_IOC_GETFLAGS = 0x80086601
_FS_IOC_SETFLAGS = 0x40086602
_FS_IMMUTABLE_FL = 0x10
_FS_APPEND_FL = 0x20

# openat2 is younger than the split of the syscall tables: 437 on every architecture.
_NR_OPENAT2 = 437
# Linux 5.14; likewise.
_NR_QUOTACTL_FD = 443

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def _checked(result: int) -> int:
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def openat2(dir_fd: int, path: bytes, flags: int, resolve: int) -> int:
    """Opens `path` below `dir_fd`. It does not create: openat2 wants mode 0 without O_CREAT."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    while True:
        try:
            return _checked(
                _libc.syscall(
                    ctypes.c_long(_NR_OPENAT2),
                    ctypes.c_long(dir_fd),
                    ctypes.c_char_p(path),
                    ctypes.byref(how),
                    ctypes.c_size_t(ctypes.sizeof(how)),
                )
            )
        except InterruptedError:
            continue


@cache
def has_openat2() -> bool:
    """Whether the kernel (5.6 and newer) and any seccomp filter around us let openat2 through."""
    try:
        os.close(openat2(-100, b"/", os.O_PATH | os.O_DIRECTORY, RESOLVE_NO_MAGICLINKS))
    except OSError as error:
        # Old container filters answer EPERM for calls that they do not know.
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return False
        raise
    return True


def renameat2(old_dir_fd: int, old: bytes, new_dir_fd: int, new: bytes, flags: int) -> None:
    """renameat2(2) of two names, each below its directory."""
    _checked(
        _libc.renameat2(
            ctypes.c_int(old_dir_fd),
            ctypes.c_char_p(old),
            ctypes.c_int(new_dir_fd),
            ctypes.c_char_p(new),
            ctypes.c_uint(flags),
        )
    )


def quotactl_fd(
    fd: int, command: int, identity: int, argument: ctypes.Array[ctypes.c_char]
) -> None:
    """quotactl(2) for the file system that `fd` is on; `argument` is read or filled."""
    _checked(
        _libc.syscall(
            ctypes.c_long(_NR_QUOTACTL_FD),
            ctypes.c_uint(fd),
            ctypes.c_uint(command),
            ctypes.c_uint(identity),
            argument,
        )
    )


def syncfs(fd: int) -> None:
    """Writes the whole file system that `fd` is on to its disk."""
    _checked(_libc.syncfs(ctypes.c_int(fd)))


def clone_file(source_fd: int, target_fd: int) -> None:
    """Shares the source's blocks copy-on-write; EOPNOTSUPP, EXDEV or EINVAL where it cannot."""
    fcntl.ioctl(target_fd, _FICLONE, source_fd)


def clear_protection(fd: int) -> bool:
    """Clears chattr's +i and +a; whether one of them was set. False where there are no flags."""
    try:
        # The ioctl says long but moves an int; both fit the 8 bytes.
        flags = struct.unpack("q", fcntl.ioctl(fd, _FS_IOC_GETFLAGS, struct.pack("q", 0)))[0]
        flags &= 0xFFFFFFFF
        if not flags & (_FS_IMMUTABLE_FL | _FS_APPEND_FL):
            return False
        flags &= ~(_FS_IMMUTABLE_FL | _FS_APPEND_FL)
        fcntl.ioctl(fd, _FS_IOC_SETFLAGS, struct.pack("q", flags))
    except OSError:
        # Not every file system has inode flags; the caller then reports its own first error.
        return False
    return True
