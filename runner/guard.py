"""What keeps the daemon alive beside its guests, as far as the machine lets it."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import resource

from jail.facts import Enforcement
from runner.errors import Overloaded

log = logging.getLogger(__name__)

#: proc(5): from -1000 (never) to 1000 (first). A guest has 500 and more (`jail.spawn`).
OOM_SCORE_ADJ = -900
_OOM_FILE = "/proc/self/oom_score_adj"
#: malloc.h: how many heaps threads may spread over.
_M_ARENA_MAX, _ARENAS = -8, 2
#: Wanted where the hard limit can be raised; else as many as it allows.
OPEN_FILES = 65_536
#: A jail's life takes about fifteen descriptors; a compiled one's files some more.
DESCRIPTORS_EACH = 24
#: For connections, the record, a checkpoint that is saved meanwhile.
DESCRIPTORS_KEPT = 32


def protect() -> None:
    """Takes the daemon out of the OOM killer's way, and as many descriptors as it may have.

    To be called before there are threads. None of it is inherited by a jail: its launcher sets its
    score, its init its limits.
    """
    _keep_heaps_few()
    with contextlib.suppress(OSError), open(_OOM_FILE, "w", encoding="ascii") as file:
        # EACCES without CAP_SYS_RESOURCE: /health says so.
        file.write(str(OOM_SCORE_ADJ))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in ((OPEN_FILES, max(hard, OPEN_FILES)), (hard, hard)):
        if hard == resource.RLIM_INFINITY or wanted[0] <= soft:
            break
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, wanted)
            break


def _keep_heaps_few() -> None:
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def give_memory_back() -> None:
    """Gives the kernel every page of the heap that holds nothing. Blocks for milliseconds.

    By itself glibc keeps what large results and archives have once used: half as much again as the
    daemon needs. To make it keep less costs each large buffer its page faults; this costs nothing
    while something runs.
    """
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def oom_protection() -> Enforcement:
    """Whether every guest goes before the daemon when the whole machine runs short of memory.

    Guests go first in either case; only with a score below 0 does everything else, too.
    """
    try:
        with open(_OOM_FILE, encoding="ascii") as file:
            return Enforcement.ENFORCED if int(file.read()) < 0 else Enforcement.ADVISORY
    except (OSError, ValueError):
        return Enforcement.ADVISORY


def free_descriptors() -> int | None:
    """How many more this process may open; None where that cannot be told."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    try:
        return soft - len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def require_descriptors(under_way: int) -> None:
    """Raises `Overloaded` if one more execution could run out of descriptors half-way.

    `under_way` executions are counted in full, though they have opened some of theirs already.
    """
    free = free_descriptors()
    if free is not None and free < DESCRIPTORS_KEPT + DESCRIPTORS_EACH * (under_way + 1):
        log.warning("too few descriptors for another execution", extra={"free": free})
        raise Overloaded("too few descriptors are free", reason="descriptors", retry_after=1)
