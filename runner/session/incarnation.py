"""The incarnation: the name of one life of the workspace on one disk, and the key of that disk.

Both are minted when a session is bound, never at process start: the process may have been
snapshotted into an image and cloned, and two clones must never share one. So they mix kernel
randomness (which a platform may reseed on resume), the session id, what the platform calls this
VM, and the clock: clones of one snapshot share at most some of these.
"""

from __future__ import annotations

import hashlib
import os
import time

#: Read when the platform has told us nothing better; differs per boot.
BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
PREFIX = "inc_"


def mint(session_id: str, *, vm_id: str | None = None) -> str:
    """A new incarnation id: `inc_` and 32 hex digits."""
    return PREFIX + _mixed(session_id, vm_id).hex()[:32]


def mint_key(session_id: str, *, vm_id: str | None = None) -> bytes:
    """A new key of 32 bytes; it has nothing to do with any incarnation id."""
    return _mixed(session_id, vm_id)


def _mixed(session_id: str, vm_id: str | None) -> bytes:
    digest = hashlib.sha256()
    for part in (
        os.urandom(32),
        session_id.encode("utf-8", "surrogateescape"),
        (vm_id or _boot_id()).encode("utf-8", "surrogateescape"),
        str(time.time_ns()).encode("ascii"),
        str(time.monotonic_ns()).encode("ascii"),
    ):
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()


def _boot_id() -> str:
    try:
        with open(BOOT_ID_FILE, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""  # Kernel randomness alone then has to do.
