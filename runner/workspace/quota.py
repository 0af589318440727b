"""How much the session's user may have on the data root's disk, in bytes and in files.

The kernel's user quota holds it where the file system has one (`quotactl(2)`, `quotactl_fd` from
Linux 5.14 on): then a program gets EDQUOT at the very write. Elsewhere it is advisory: the tree is
measured between programs. Why a user's quota and no other: docs/adr/0006.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import struct
from dataclasses import dataclass

from jail.facts import Enforcement
from runner.errors import InsufficientStorage
from runner.workspace import syscalls
from runner.workspace.tree import Tree
from runner.workspace.treewalk import TooManyEntriesError

log = logging.getLogger(__name__)

#: A file costs an inode and, with one byte in it, a block: more files than that have nothing in
#: them, and are what fills a disk's inodes.
BYTES_PER_FILE = 4096
#: Of a quota that is used up this much may be left, which no block fits in.
SLACK_BYTES = 64 << 10

# include/uapi/linux/quota.h, dqblk_xfs.h: QCMD(command, USRQUOTA)
_USRQUOTA = 0
_SETQUOTA, _GETQUOTA, _QUOTAON = 0x800008, 0x800007, 0x800002
_XGETQSTAT = 0x5805
_USER_ENFORCED = 1 << 1  # FS_QUOTA_UDQ_ENFD
_LIMITS_VALID = 1 << 0 | 1 << 2  # QIF_BLIMITS, QIF_ILIMITS
_LIMIT_UNIT = 1024
_DQBLK = struct.Struct("=8QI4x")
_QFMT_VFS_V1 = 4


@dataclass(frozen=True, slots=True)
class Usage:
    """What is used: allocated bytes, and files of every kind."""

    bytes: int
    files: int


class Quota:
    """The limit of one user. All of it blocks."""

    def __init__(self, top: Tree, *, uid: int, max_bytes: int) -> None:
        """Sets it, or finds that the kernel does not hold it here. `top` stays the caller's."""
        self._top = top
        self._uid = uid
        self.max_bytes = max_bytes
        self.max_files = max(max_bytes // BYTES_PER_FILE, 1)
        self.enforcement = Enforcement.ENFORCED if self._set() else Enforcement.ADVISORY
        log.info("workspace quota", extra={"limits": self.enforcement.value, "bytes": max_bytes})

    @property
    def is_enforced(self) -> bool:
        """Whether the kernel refuses what is above it."""
        return self.enforcement is Enforcement.ENFORCED

    def is_reached(self, workspace: Tree) -> bool:
        """Whether nothing more fits."""
        used = self.used(workspace)
        return used.bytes > self.max_bytes - SLACK_BYTES or used.files >= self.max_files

    def require_room(self, workspace: Tree, *, more: int = 0) -> None:
        """Raises if `more` bytes do not fit, or where only this keeps the workspace from growing.

        `more` are what the daemon puts there itself: the kernel lets root pass.
        """
        if self.is_enforced and not more:
            return  # A program that removes files has to be let in.
        used = self.used(workspace)
        if used.bytes + more > self.max_bytes or used.files > self.max_files:
            raise InsufficientStorage(
                "the workspace holds more than it may: delete files, or restore into it",
                reason="workspace_full",
            )

    def used(self, workspace: Tree) -> Usage:
        """As the kernel counts for the user, in all of the data root; else of this tree."""
        return self._counted() if self.is_enforced else self._measured(workspace)

    def _measured(self, workspace: Tree) -> Usage:
        """Hard links are counted once for each name. Nothing of a file is read."""
        used_bytes = files = 0
        try:
            for entry in workspace.walk(max_entries=self.max_files + 1):
                files += 1
                # Blocks of 512 bytes, whatever the file system's own are (stat(2)).
                used_bytes += entry.stat.st_blocks * 512
        except TooManyEntriesError:
            return Usage(used_bytes, self.max_files + 1)
        return Usage(used_bytes, files)

    # The kernel's quota

    @classmethod
    def lift(cls, top: Tree, *, uid: int) -> None:
        """Takes away what an earlier daemon has set on this disk, if there is anything."""
        none = _DQBLK.pack(0, 0, 0, 0, 0, 0, 0, 0, _LIMITS_VALID)
        with contextlib.suppress(OSError):
            _control(top, _SETQUOTA, uid, none)

    def _set(self) -> bool:
        limits = _DQBLK.pack(
            self.max_bytes // _LIMIT_UNIT, 0, 0, self.max_files, 0, 0, 0, 0, _LIMITS_VALID
        )
        try:
            if not self._limits_hold():
                # ext4 that was made with the quota feature counts in any case; this makes it hold.
                _control(self._top, _QUOTAON, _QFMT_VFS_V1, b"")
            _control(self._top, _SETQUOTA, self._uid, limits)
            return self._limits_hold()
        except OSError as error:
            # ENOSYS, ESRCH, ENOTSUP, EPERM: an old kernel, or a file system without.
            log.debug("no user quota here: %s", os.strerror(error.errno or 0))
            return False

    def _limits_hold(self) -> bool:
        # struct fs_quota_stat: version, then the flags.
        status = _control(self._top, _XGETQSTAT, 0, bytes(128))
        return bool(struct.unpack_from("=bxH", status)[1] & _USER_ENFORCED)

    def _counted(self) -> Usage:
        counted = _DQBLK.unpack(_control(self._top, _GETQUOTA, self._uid, bytes(_DQBLK.size)))
        return Usage(counted[2], counted[5])


def _control(top: Tree, command: int, identity: int, argument: bytes) -> bytes:
    buffer = ctypes.create_string_buffer(argument, max(len(argument), 1))
    syscalls.quotactl_fd(top.fileno(), command << 8 | _USRQUOTA, identity, buffer)
    return buffer.raw
