"""The wall clock after a suspend: how far it is off, and stepping it.

A guest's clocks stand still while its VM is suspended. Nothing we time is hurt by that (deadlines
are on CLOCK_MONOTONIC), but programs see certificates from the future and caches that never expire.
"""

from __future__ import annotations

import contextlib
import glob
import os
import time
from datetime import UTC, datetime

from runner.vm.steps import Step

#: A clock that is off by no more than this is left alone: stepping it does harm, too.
TOLERATED_NS = 100_000_000
#: ptp_kvm and the like: the hypervisor's clock as a device. Only a real VM has one.
PTP_DEVICES = "/dev/ptp[0-9]*"


def parse_time(text: str) -> int | None:
    """RFC 3339 with an offset, in ns since the epoch; None if it is not that."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000


def hypervisor_time() -> int | None:
    """The first PTP device's time, in ns since the epoch; None where there is none."""
    for path in sorted(glob.glob(PTP_DEVICES)):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # FD_TO_CLOCKID of the kernel's Documentation/driver-api/ptp.rst.
                return time.clock_gettime_ns((~fd << 3) | 3)
            finally:
                os.close(fd)
    return None


def correct(given_ns: int | None) -> Step:
    """Steps the wall clock to the hypervisor's time, else to `given_ns`, if it is off by more than
    `TOLERATED_NS`; and looks whether that worked."""
    name = "clock"
    source, true_ns = "hypervisor", hypervisor_time()
    if true_ns is None:
        source, true_ns = "request", given_ns
    if true_ns is None:
        return Step(name=name, done=False, detail="no trustworthy time was given")
    measured_ns = time.monotonic_ns()
    off_ns = time.time_ns() - true_ns
    if abs(off_ns) <= TOLERATED_NS:
        return Step(name=name, done=True, detail=f"off by {off_ns // 10**6} ms: left alone")
    try:
        time.clock_settime_ns(time.CLOCK_REALTIME, true_ns + time.monotonic_ns() - measured_ns)
    except OSError:
        return Step(name=name, done=False, detail=f"off by {off_ns // 10**6} ms; not permitted")
    left_ns = time.time_ns() - (true_ns + time.monotonic_ns() - measured_ns)
    return Step(
        name=name,
        done=abs(left_ns) <= TOLERATED_NS,
        detail=f"was off by {off_ns // 10**6} ms, is by {left_ns // 10**6} ms ({source})",
    )
