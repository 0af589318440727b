"""The wall clock after a suspend: how far it is off, and stepping it.

A guest's clocks stand still while its VM is suspended. Nothing we time is hurt by that (deadlines
are on CLOCK_MONOTONIC), but programs see certificates from the future and caches that never expire.
"""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from runner.vm.steps import Step

#: A clock that is off by no more than this is left alone: stepping it does harm, too.
TOLERATED_NS = 100_000_000
#: 2026, when this was written, and 2100: outside of it, it is no time of a clock that works.
EARLIEST_NS, LATEST_NS = 1_767_225_600 * 10**9, 4_102_444_800 * 10**9
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


def _set_wall(to_ns: int) -> None:
    time.clock_settime_ns(time.CLOCK_REALTIME, to_ns)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The machine's clocks; times in ns."""

    wall: Callable[[], int] = time.time_ns
    monotonic: Callable[[], int] = time.monotonic_ns
    hypervisor: Callable[[], int | None] = hypervisor_time
    #: OSError where it may not be set, or not to that.
    set_wall: Callable[[int], None] = _set_wall


MACHINE = Clocks()


def correct(given_ns: int | None, clocks: Clocks = MACHINE) -> Step:
    """Steps the wall clock to the hypervisor's time, else to `given_ns`, if it is off by more than
    `TOLERATED_NS`; and looks whether that worked."""
    name = "clock"
    source, true_ns = "hypervisor", clocks.hypervisor()
    if true_ns is None:
        source, true_ns = "request", given_ns
    if true_ns is None or not EARLIEST_NS <= true_ns <= LATEST_NS:
        return Step(name=name, done=False, detail="no trustworthy time was given")
    # What it is now: time goes on while we work.
    lag_ns = true_ns - clocks.monotonic()
    off_ns = clocks.wall() - (lag_ns + clocks.monotonic())
    if abs(off_ns) <= TOLERATED_NS:
        return Step(name=name, done=True, detail=f"off by {_ms(off_ns)} ms: left alone")
    try:
        clocks.set_wall(lag_ns + clocks.monotonic())
    except OSError:
        return Step(name=name, done=False, detail=f"off by {_ms(off_ns)} ms; not permitted")
    left_ns = clocks.wall() - (lag_ns + clocks.monotonic())
    return Step(
        name=name,
        done=abs(left_ns) <= TOLERATED_NS,
        detail=f"was off by {_ms(off_ns)} ms, is by {_ms(left_ns)} ms ({source})",
    )


def _ms(ns: int) -> int:
    return round(ns / 1_000_000)
