"""Which system calls change a file system, and where in their arguments the file is. x86-64.

Pure tables, and the filter that is made of them (`seccomp(2)`, classic BPF).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

MACHINE = "x86_64"
_AUDIT_ARCH = 0xC000003E  # AUDIT_ARCH_X86_64
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
# struct seccomp_data: nr, arch, instruction_pointer, args[6]; the low half of an argument first.
_NR, _ARCH, _ARGS = 0, 4, 16

_WRITING = 0o100 | 0o1000 | 0o20000000  # O_CREAT, O_TRUNC, O_TMPFILE
_FICLONE, _FICLONERANGE, _SETFLAGS = 0x40049409, 0x4020940D, 0x40086602


class Kind(Enum):
    """What a call needs of the disk."""

    #: Room: a full disk refuses it.
    GROWS = auto()
    #: No room, but it changes what is there.
    CHANGES = auto()
    #: Only that what was done before is on the disk.
    SYNCS = auto()
    #: Nothing; it looks.
    READS = auto()


@dataclass(frozen=True, slots=True)
class Call:
    """One system call of the kernel's table.

    `fd` is the argument with a descriptor; `paths` are (directory argument or None, path argument).
    `bits` (argument, mask) and `values` (argument, values) say when it counts, where not always.
    """

    number: int
    kind: Kind
    fd: int | None = None
    paths: tuple[tuple[int | None, int], ...] = ()
    bits: tuple[int, int] | None = None
    values: tuple[int, tuple[int, ...]] | None = None


def _at(number: int, kind: Kind, *dirs: int, bits: tuple[int, int] | None = None) -> Call:
    return Call(number, kind, paths=tuple((each, each + 1) for each in dirs), bits=bits)


def _path(number: int, kind: Kind, *paths: int, bits: tuple[int, int] | None = None) -> Call:
    return Call(number, kind, paths=tuple((None, each) for each in paths), bits=bits)


def _fd(number: int, kind: Kind, fd: int = 0) -> Call:
    return Call(number, kind, fd=fd)


CHANGING: dict[str, Call] = {
    "open": _path(2, Kind.GROWS, 0, bits=(1, _WRITING)),
    "openat": _at(257, Kind.GROWS, 0, bits=(2, _WRITING)),
    "creat": _path(85, Kind.GROWS, 0),
    "write": _fd(1, Kind.GROWS),
    "pwrite64": _fd(18, Kind.GROWS),
    "writev": _fd(20, Kind.GROWS),
    "pwritev": _fd(296, Kind.GROWS),
    "pwritev2": _fd(328, Kind.GROWS),
    "sendfile": _fd(40, Kind.GROWS),
    "splice": _fd(275, Kind.GROWS, 2),
    "copy_file_range": _fd(326, Kind.GROWS, 2),
    "fallocate": _fd(285, Kind.GROWS),
    "ftruncate": _fd(77, Kind.CHANGES),
    "truncate": _path(76, Kind.CHANGES, 0),
    "mkdir": _path(83, Kind.GROWS, 0),
    "mkdirat": _at(258, Kind.GROWS, 0),
    "mknod": _path(133, Kind.GROWS, 0),
    "mknodat": _at(259, Kind.GROWS, 0),
    "link": _path(86, Kind.GROWS, 0, 1),
    "linkat": _at(265, Kind.GROWS, 0, 2),
    "symlink": _path(88, Kind.GROWS, 1),
    "symlinkat": _at(266, Kind.GROWS, 1),
    "rename": _path(82, Kind.GROWS, 0, 1),
    "renameat": _at(264, Kind.GROWS, 0, 2),
    "renameat2": _at(316, Kind.GROWS, 0, 2),
    "unlink": _path(87, Kind.CHANGES, 0),
    "unlinkat": _at(263, Kind.CHANGES, 0),
    "rmdir": _path(84, Kind.CHANGES, 0),
    "chmod": _path(90, Kind.CHANGES, 0),
    "fchmod": _fd(91, Kind.CHANGES),
    "fchmodat": _at(268, Kind.CHANGES, 0),
    "fchmodat2": _at(452, Kind.CHANGES, 0),
    "chown": _path(92, Kind.CHANGES, 0),
    "lchown": _path(94, Kind.CHANGES, 0),
    "fchown": _fd(93, Kind.CHANGES),
    "fchownat": _at(260, Kind.CHANGES, 0),
    "utime": _path(132, Kind.CHANGES, 0),
    "utimes": _path(235, Kind.CHANGES, 0),
    "futimesat": _at(261, Kind.CHANGES, 0),
    "utimensat": _at(280, Kind.CHANGES, 0),
    "setxattr": _path(188, Kind.GROWS, 0),
    "lsetxattr": _path(189, Kind.GROWS, 0),
    "fsetxattr": _fd(190, Kind.GROWS),
    "removexattr": _path(197, Kind.CHANGES, 0),
    "lremovexattr": _path(198, Kind.CHANGES, 0),
    "fremovexattr": _fd(199, Kind.CHANGES),
    "ioctl": Call(
        16, Kind.GROWS, fd=0, values=(1, (_FICLONE, _FICLONERANGE, _SETFLAGS))
    ),
    "fsync": _fd(74, Kind.SYNCS),
    "fdatasync": _fd(75, Kind.SYNCS),
    "syncfs": _fd(306, Kind.SYNCS),
    "sync_file_range": _fd(277, Kind.SYNCS),
}  # fmt: skip

READING: dict[str, Call] = {
    "read": _fd(0, Kind.READS),
    "pread64": _fd(17, Kind.READS),
    "readv": _fd(19, Kind.READS),
    "getdents64": _fd(217, Kind.READS),
    "readlinkat": _at(267, Kind.READS, 0),
    "newfstatat": _at(262, Kind.READS, 0),
    "openat": Call(257, Kind.READS, paths=((0, 1),)),
    "openat2": _at(437, Kind.READS, 0),
}


def filter_program(calls: Iterable[Call]) -> bytes:
    """BPF that notifies of these calls and allows all others, as an array of sock_filter."""
    program = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _NR),
    ]
    for call in calls:
        block: list[tuple[int, int, int, int]] = []
        if call.bits is not None:
            argument, mask = call.bits
            block = [(_LOAD, 0, 0, _ARGS + 8 * argument), (_ANY_BIT, 0, 1, mask)]
        elif call.values is not None:
            argument, values = call.values
            block = [(_LOAD, 0, 0, _ARGS + 8 * argument)]
            for left, value in zip(range(len(values) - 1, -1, -1), values, strict=True):
                block.append((_EQUAL, left, 0 if left else 1, value))
        block += [(_RETURN, 0, 0, _NOTIFY)]
        if call.bits is not None or call.values is not None:
            block += [(_RETURN, 0, 0, _ALLOW)]
        program += [(_EQUAL, 0, len(block), call.number), *block]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in program)
