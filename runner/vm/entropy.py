"""The kernel's random generator after a resume: two clones of one snapshot must not agree on it.

Linux reseeds by itself where the hypervisor offers a VM generation id (vmgenid, 5.18 and newer).
Where it does not, what differs between clones has to be mixed in, and the generator told to use it
at once: its own reseed comes up to a minute later.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time

from runner.vm.steps import Step

#: linux/random.h RNDRESEEDCRNG: _IO('R', 0x07). Needs CAP_SYS_ADMIN.
RNDRESEEDCRNG = 0x5207
HARDWARE = "/dev/hwrng"
HARDWARE_BYTES = 64


def reseed(*, vm_id: str | None, given: bytes = b"") -> Step:
    """Mixes in what differs between clones and has the generator use it. Credits no entropy.

    `given` is randomness that the caller brought; `vm_id` what the platform calls this VM.
    """
    hardware = _hardware()
    sources = [
        name
        for name, there in (("hardware", hardware), ("request", given), ("vm id", vm_id))
        if there
    ]
    mixed = hashlib.sha512()
    for part in (hardware, given, (vm_id or "").encode("utf-8", "surrogateescape")):
        mixed.update(len(part).to_bytes(4, "big") + part)
    mixed.update(b"%d %d %d" % (time.time_ns(), time.monotonic_ns(), os.getpid()))
    try:
        fd = os.open("/dev/urandom", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return Step(name="entropy", done=False, detail="the generator cannot be opened")
    try:
        os.write(fd, mixed.digest())
        fcntl.ioctl(fd, RNDRESEEDCRNG)
    except OSError:
        return Step(name="entropy", done=False, detail="the generator could not be reseeded")
    finally:
        os.close(fd)
    said = ", ".join([*sources, "clocks"])
    return Step(name="entropy", done=True, detail=f"reseeded; mixed in: {said}")


def _hardware() -> bytes:
    try:
        # It may have no source behind it, and then says so or blocks.
        fd = os.open(HARDWARE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, HARDWARE_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)
