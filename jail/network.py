"""The egress network: a namespace per jail, let out to the public internet and nowhere else.

What a jail gets: one IPv4 address (and one IPv6 address where the host has an IPv6 default route)
on a veth pair, the default route, and a resolv.conf that names fixed addresses of ours. The rules
are in `nft`, and in force before the first namespace is made.

DNS. The host's nameserver is often one that a jail must not reach: a VPC's resolver, 127.0.0.1. So
a jail is given an address of its own range, and packets to port 53 of that, and no others, are
redirected to the nameserver, whose own address stays out of reach. Which nameservers those are is
read from the host's resolv.conf again for each jail, since a VM may have been snapshotted on one
network and started on another.

What changes on the host: one nftables table named after the owner; `net.ipv4.ip_forward=1` and,
with IPv6, `net.ipv6.conf.all.forwarding=1` (and `accept_ra=2` where it was 1). What was off is put
back on close, and while it is on, packets that are not a jail's are still not forwarded. A table of
somebody else's that drops forwarded packets (Docker's does) is not ours to open.

After `kill -9` nothing has to be remembered: namespaces are held by descriptors and go with the
process, the table carries what the switches were, and `open` of the same owner begins by clearing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from jail import netlink
from jail.errors import NetworkUnavailable
from jail.firewall import GATEWAY_OFFSET, Firewall, Surroundings

#: Where the addresses of jails begin in their range, and how many there are. Each is used once
#: before any is used again: what still comes in for an ended jail must not find another there.
_JAIL_OFFSET = 256
_JAILS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class NetworkNamespace:
    """A namespace for one jail; it lives until it is released *and* the last process in it ends."""

    #: For setns(2) or `nsenter --net=`, until it is released or this process ends.
    path: str
    descriptor: int
    #: The host's end of the veth pair.
    interface: str
    address4: IPv4Address
    address6: IPv6Address | None
    #: What /etc/resolv.conf has to be in the jail.
    resolv_conf: str
    index: int = field(repr=False)


class EgressNetwork:
    """The daemon's side of it. Belongs to one event loop."""

    def __init__(self, firewall: Firewall) -> None:
        """Use `open`."""
        self._firewall = firewall
        self._refreshing = asyncio.Lock()
        self._indices = self._unused_indices()
        self._live: dict[int, NetworkNamespace] = {}

    @classmethod
    async def open(cls, owner: str) -> EgressNetwork:
        """Clears what an earlier process of this owner left, and puts the rules in force.

        `owner` is any text that tells this daemon from others on the host, the same at each start.
        Raises `NetworkUnavailable`: nft, pyroute2, a capability or a kernel feature is missing.
        """
        with _saying("set up the egress network"):
            firewall = Firewall(owner)
            await asyncio.to_thread(firewall.start)
        return cls(firewall)

    async def acquire(self) -> NetworkNamespace:
        """A namespace for one jail, connected. Raises `NetworkUnavailable`."""
        with _saying("make a network namespace"):
            async with self._refreshing:
                around = await asyncio.to_thread(self._firewall.refresh)
            index = next(self._indices)
            pair = self._pair(index, around)
            making = _in_a_thread_of_its_own(lambda: netlink.make_inside(pair))
            try:
                descriptor = await asyncio.wrap_future(making)
            except asyncio.CancelledError:
                making.add_done_callback(_close_unclaimed)
                raise
            namespace = NetworkNamespace(
                path=f"/proc/{os.getpid()}/fd/{descriptor}",
                descriptor=descriptor,
                interface=pair.outside_name,
                address4=pair.inside4,
                address6=pair.inside6,
                resolv_conf="".join(f"nameserver {each.inside}\n" for each in around.resolvers),
                index=index,
            )
            self._live[index] = namespace
            try:
                await asyncio.to_thread(netlink.make_outside, pair, to_loopback=around.to_loopback)
            except BaseException:
                await asyncio.shield(self.release(namespace))
                raise
        return namespace

    async def release(self, namespace: NetworkNamespace) -> None:
        """Takes the network away, also from what still runs in it. May be called again."""
        if self._live.pop(namespace.index, None) is None:
            return
        os.close(namespace.descriptor)
        with _saying("remove a network interface"):
            # The kernel waits for readers (RCU), some 20 ms.
            await asyncio.shield(asyncio.to_thread(netlink.remove, namespace.interface))

    async def close(self) -> None:
        """Releases every namespace, removes the rules, puts the host's switches back."""
        for namespace in list(self._live.values()):
            await self.release(namespace)
        with _saying("remove the egress network"):
            await asyncio.to_thread(self._firewall.stop)

    def _pair(self, index: int, around: Surroundings) -> netlink.Pair:
        inside6 = self._firewall.inside6[_JAIL_OFFSET + index]
        return netlink.Pair(
            outside_name=f"{self._firewall.prefix}{index}",
            gateway4=around.inside4[GATEWAY_OFFSET],
            inside4=around.inside4[_JAIL_OFFSET + index],
            inside6=inside6 if around.has_ipv6 else None,
            mtu=around.mtu,
        )

    def _unused_indices(self) -> Iterator[int]:
        # From anywhere: the process before us, or another owner's on this host, began elsewhere.
        for number in itertools.count(secrets.randbelow(_JAILS_MAX)):
            if number % _JAILS_MAX not in self._live:
                yield number % _JAILS_MAX


def _in_a_thread_of_its_own(function: Callable[[], int]) -> Future[int]:
    """Runs it in a thread that is used for nothing else and ends with it."""
    done: Future[int] = Future()
    done.set_running_or_notify_cancel()  # so that who waits may be cancelled, but not this

    def run() -> None:
        try:
            result = function()
        except BaseException as error:  # raised again where the result is awaited
            done.set_exception(error)
        else:
            done.set_result(result)

    threading.Thread(target=run, name="network-namespace").start()
    return done


def _close_unclaimed(making: Future[int]) -> None:
    """A namespace nobody waits for any more goes with its descriptor."""
    if making.exception() is None:
        os.close(making.result())


@contextlib.contextmanager
def _saying(attempt: str) -> Iterator[None]:
    """The one place where what the system says becomes `NetworkUnavailable`."""
    try:
        yield
    except (OSError, subprocess.SubprocessError) as error:
        raise NetworkUnavailable(f"cannot {attempt}: {error}") from error
