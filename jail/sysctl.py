"""Whole numbers below /proc/sys/net, as the network namespace of the calling *thread* has them."""

from __future__ import annotations

import os

_ROOT = "/proc/sys/net"


def read(name: str) -> int | None:
    """The value; None where the kernel has no such switch."""
    try:
        with open(f"{_ROOT}/{name}", encoding="ascii") as file:
            return int(file.read())
    except FileNotFoundError:
        return None


def write(name: str, value: int) -> None:
    """Sets it, unless it is so already (/proc/sys may be read-only and right) or does not exist."""
    if read(name) not in (None, value):
        with open(f"{_ROOT}/{name}", "w", encoding="ascii") as file:
            file.write(str(value))


def keep_router_advertisements() -> None:
    """Lets every interface that listens to routers go on listening once this host forwards IPv6.

    At 1 the kernel stops, and drops the default route it has learnt, when forwarding is switched
    on; 2 means "even so". With forwarding off the two are the same: nothing has to put it back.
    """
    conf = f"{_ROOT}/ipv6/conf"
    for interface in os.listdir(conf):
        if read(f"ipv6/conf/{interface}/accept_ra") == 1:
            write(f"ipv6/conf/{interface}/accept_ra", 2)
