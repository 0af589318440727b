"""What a full disk is called: a typed refusal instead of an errno."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from runner.errors import InsufficientStorage

# EFBIG: a limit of the file system, or RLIMIT_FSIZE of whoever started the daemon.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: OSError) -> bool:
    """Whether it says that there is no space, no inode or no quota left."""
    return error.errno in _FULL


@contextmanager
def full_disk_is_told(detail: str) -> Iterator[None]:
    """Raises `InsufficientStorage` with `detail` in place of the kernel's error."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise InsufficientStorage(detail) from error
        raise
