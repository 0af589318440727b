"""Network namespaces and veth pairs: the few netlink calls the egress network is made of.

Thin, synchronous, blocking; no policy and no rules here. A namespace has no name in the file
system: it lives by the descriptor that `make_inside` returns and by the processes in it, and its
end of the veth pair, and with it the host's, goes with it. So nothing is left of it when the daemon
is killed, whatever killed it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from socket import AF_INET, AF_INET6
from typing import Any

from jail import sysctl
from jail.errors import NetworkUnavailable

#: The jail's end. A namespace of its own has no other use for the name.
INSIDE_NAME = "eth0"

#: The host's end answers to this in every jail (RFC 4291: link-local, so the same on every link).
GATEWAY6 = IPv6Address("fe80::1")

_CLONE_NEWNET = 0x40000000
_RT_SCOPE_LINK = 253
_RTN_UNICAST = 1
_IFA_F_NODAD = 0x02
_MTU_DEFAULT = 1500
#: linux/if_link.h: IN6_ADDR_GEN_MODE_NONE. No address but those given, so none to wait a DAD for.
_ADDR_GEN_NONE = 1


@dataclass(frozen=True, slots=True)
class Uplink:
    """How the host reaches the world: whether by IPv6 too, and in packets of what size."""

    has_ipv6: bool
    mtu: int


@dataclass(frozen=True, slots=True)
class Pair:
    """One veth pair: the host's end by name, the jail's by its addresses."""

    outside_name: str
    gateway4: IPv4Address
    inside4: IPv4Address
    inside6: IPv6Address | None
    mtu: int


@contextlib.contextmanager
def _socket() -> Iterator[Any]:
    """A netlink socket of the namespace this thread is in; its errors come out as OSError."""
    try:
        # 0.15 s to load: only a daemon with egress pays for it.
        from pyroute2 import IPRoute  # noqa: PLC0415
        from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415
    except ImportError as error:
        raise NetworkUnavailable(f"pyroute2 cannot be loaded: {error}") from error
    try:
        with IPRoute() as socket:
            yield socket
    except NetlinkError as error:
        raise OSError(error.code, os.strerror(error.code)) from error


def uplink() -> Uplink:
    """Reads the default routes of the namespace this thread is in."""
    with _socket() as host:
        routes4 = _default_routes(host, AF_INET)
        routes6 = _default_routes(host, AF_INET6)
        mtus = [
            int(link.get_attr("IFLA_MTU"))
            for index in {route.get_attr("RTA_OIF") for route in routes4 + routes6} - {None}
            for link in host.get_links(index)
        ]
    return Uplink(has_ipv6=bool(routes6), mtu=min(mtus, default=_MTU_DEFAULT))


def networks_in_use() -> list[IPv4Network]:
    """Every IPv4 destination the host has a route to, in any table, its own addresses included."""
    with _socket() as host:
        return [
            IPv4Network(f"{destination}/{route['dst_len']}", strict=False)
            for route in host.get_routes(family=AF_INET)
            if (destination := route.get_attr("RTA_DST")) is not None
        ]


def sweep(prefix: str) -> int:
    """Deletes every link of this host whose name begins so; returns how many there were."""
    with _socket() as host:
        names = [link.get_attr("IFLA_IFNAME") for link in host.get_links()]
    return sum(remove(name) for name in names if name.startswith(prefix))


def remove(name: str) -> bool:
    """Deletes one link, and its peer with it; False if it is gone already."""
    try:
        with _socket() as host:
            host.link("del", index=_index(host, name))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return False
        raise
    return True


def make_inside(pair: Pair) -> int:
    """Makes the namespace, the pair, and everything within; returns the namespace's descriptor.

    It moves *the calling thread* into the new namespace, for good: call it in a thread that ends
    with it. `make_outside` does the host's half.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            with _socket() as inside:
                _configure_inside(inside, pair, home)
        except BaseException:
            os.close(namespace)
            raise
        return namespace
    finally:
        os.close(home)


def _configure_inside(inside: Any, pair: Pair, home: int) -> None:
    peer = {"ifname": pair.outside_name, "net_ns_fd": home, "mtu": pair.mtu}
    inside.link("add", ifname=INSIDE_NAME, kind="veth", mtu=pair.mtu, peer=peer)
    eth = _index(inside, INSIDE_NAME)
    inside.link("set", index=1, state="up")  # loopback is the first link of every namespace
    if pair.inside6 is None:
        sysctl.write(f"ipv6/conf/{INSIDE_NAME}/disable_ipv6", 1)
    else:
        sysctl.write(f"ipv6/conf/{INSIDE_NAME}/accept_ra", 0)
        sysctl.write(f"ipv6/conf/{INSIDE_NAME}/addr_gen_mode", _ADDR_GEN_NONE)
    inside.link("set", index=eth, state="up")
    inside.addr("add", index=eth, address=str(pair.inside4), prefixlen=32)
    inside.route("add", dst=f"{pair.gateway4}/32", oif=eth, scope=_RT_SCOPE_LINK)
    inside.route("add", dst="default", gateway=str(pair.gateway4), oif=eth)
    if pair.inside6 is not None:
        inside.addr("add", index=eth, address=str(pair.inside6), prefixlen=128, flags=_IFA_F_NODAD)
        inside.route("add", family=AF_INET6, dst="fe80::/64", oif=eth)
        inside.route("add", family=AF_INET6, dst="default", gateway=str(GATEWAY6), oif=eth)


def make_outside(pair: Pair, *, to_loopback: bool) -> None:
    """Gives the host's end its addresses and the routes to the jail's, and nothing wider than them.

    Every pair's host end has the same address: with a route to one address behind each, no two
    jails share a network. `to_loopback` lets a redirected packet go to 127.0.0.0/8 of the host.
    """
    with _socket() as host:
        veth = _index(host, pair.outside_name)
        sysctl.write(f"ipv6/conf/{pair.outside_name}/addr_gen_mode", _ADDR_GEN_NONE)
        if to_loopback:
            sysctl.write(f"ipv4/conf/{pair.outside_name}/route_localnet", 1)
        host.link("set", index=veth, state="up")
        host.addr("add", index=veth, address=str(pair.gateway4), prefixlen=32)
        host.route("add", dst=f"{pair.inside4}/32", oif=veth, scope=_RT_SCOPE_LINK)
        if pair.inside6 is not None:
            host.addr("add", index=veth, address=str(GATEWAY6), prefixlen=64, flags=_IFA_F_NODAD)
            host.route("add", family=AF_INET6, dst=f"{pair.inside6}/128", oif=veth)


def _index(socket: Any, name: str) -> int:
    found = socket.link_lookup(ifname=name)
    if not found:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    return int(found[0])


def _default_routes(host: Any, family: int) -> list[Any]:
    routes = host.get_default_routes(family=family)
    return [route for route in routes if route["type"] == _RTN_UNICAST]
