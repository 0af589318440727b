"""Puts the rules of `nft` in force on this host, keeps them current, and takes them away again.

Synchronous and blocking; one caller at a time. What a rule says is in `nft`; here is when it is
loaded, from what it is filled in, and the kernel's forwarding switches that go with it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from jail import netlink, nft, sysctl
from jail.errors import NetworkUnavailable

log = logging.getLogger(__name__)

#: A ruleset takes nft 3-15 ms; past this it is stuck.
NFT_TIMEOUT_S = 10.0

#: Addresses of the jails' range: the gateway, and the first of up to three resolvers.
GATEWAY_OFFSET = 1
RESOLVER_OFFSET = 53

RESOLV_CONF = "/etc/resolv.conf"
#: What systemd-resolved hides behind 127.0.0.53, which answers nothing but lo.
RESOLVED_CONF = "/run/systemd/resolve/resolv.conf"

_FORWARDING = {4: "ipv4/ip_forward", 6: "ipv6/conf/all/forwarding"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rules depend on and the host may change: it may be a clone on another network."""

    inside4: IPv4Network
    resolvers: tuple[nft.Resolver, ...]
    has_ipv6: bool
    mtu: int

    @property
    def to_loopback(self) -> bool:
        """Whether a nameserver listens on the host's loopback only."""
        return any(resolver.upstream.is_loopback for resolver in self.resolvers)


class Firewall:
    """The rules of one owner, and no others; two daemons on one host do not see each other's."""

    def __init__(self, owner: str) -> None:
        """Only names: `start` does something. Raises `NetworkUnavailable` where there is no nft."""
        # Also where PATH is a user's and does not lead to administrators' programs.
        program = shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if program is None:
            raise NetworkUnavailable("the program nft is not installed")
        self._program = program
        digest = hashlib.sha256(owner.encode()).hexdigest()
        self._table = f"sandbox_runner_{digest[:12]}"
        #: IFNAMSIZ leaves 15 characters: 9 here, and 6 for a number.
        self.prefix = f"sj{digest[:6]}-"
        #: RFC 4193: fd, and 40 bits that nobody else is likely to have chosen.
        self.inside6 = IPv6Network((int(f"fd{digest[:10]}", 16) << 80, 64))
        self._was_off: frozenset[int] = frozenset()
        self._in_force: Surroundings | None = None

    def start(self) -> None:
        """Clears what an earlier process of this owner left, and loads the rules."""
        swept = netlink.sweep(self.prefix)
        self._was_off = nft.was_off(self._listing())
        if swept or self._was_off:
            log.info("cleared %d network interfaces an earlier process left", swept)
        self.refresh()

    def refresh(self) -> Surroundings:
        """Loads the rules again if the host's network is another than the one they are for."""
        around = self._look_around()
        if around != self._in_force:
            log.info("loading the egress rules for %s", around)
            self._load(around)
            self._in_force = around
        return around

    def stop(self) -> None:
        """Ends every connection of a jail, puts the switches back and removes the rules."""
        netlink.sweep(self.prefix)
        for version in self._was_off:
            sysctl.write(_FORWARDING[version], 0)
        self._nft(nft.remove(self._table))
        self._in_force = None

    def _look_around(self) -> Surroundings:
        uplink = netlink.uplink()
        if self._in_force is None:
            inside4 = nft.free_inside4(netlink.networks_in_use())
            if inside4 is None:
                raise NetworkUnavailable("the host has routes to all the ranges meant for jails")
        else:  # Jails are living there; and their own routes would seem to occupy it.
            inside4 = self._in_force.inside4
        upstreams = nft.nameservers(_text_of(RESOLV_CONF))
        if upstreams and all(address.is_loopback for address in upstreams):
            upstreams = nft.nameservers(_text_of(RESOLVED_CONF)) or upstreams
        resolvers: list[nft.Resolver] = []
        for offset, upstream in enumerate(upstreams, start=RESOLVER_OFFSET):
            if upstream.version == 4:
                resolvers.append(nft.Resolver(inside4[offset], upstream))
            elif uplink.has_ipv6 and not upstream.is_loopback:
                # Nothing redirects to ::1: the kernel has no route_localnet for IPv6.
                resolvers.append(nft.Resolver(self.inside6[offset], upstream))
        return Surroundings(inside4, tuple(resolvers), has_ipv6=uplink.has_ipv6, mtu=uplink.mtu)

    def _load(self, around: Surroundings) -> None:
        versions = (4, 6) if around.has_ipv6 else (4,)
        off = {version for version in versions if sysctl.read(_FORWARDING[version]) == 0}
        self._was_off |= off
        plan = nft.Plan(
            table=self._table,
            interface_prefix=self.prefix,
            inside4=around.inside4,
            inside6=self.inside6,
            resolvers=around.resolvers,
            forwarding_was_off=self._was_off,
        )
        # The rule that forwards for nobody else comes before the switch that would.
        self._nft(nft.render(plan))
        if 6 in off:
            sysctl.keep_router_advertisements()
        for version in off:
            sysctl.write(_FORWARDING[version], 1)

    def _listing(self) -> str:
        """The rules as an earlier process left them; empty where there are none."""
        ran = self._run("list", "table", "inet", self._table)
        return ran.stdout if ran.returncode == 0 else ""

    def _nft(self, ruleset: str) -> None:
        ran = self._run("-f", "-", ruleset=ruleset)
        if ran.returncode != 0:
            raise NetworkUnavailable(f"nft refused the rules: {ran.stderr.strip()[:500]}")

    def _run(self, *arguments: str, ruleset: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, *arguments],
            input=ruleset,
            capture_output=True,
            text=True,
            timeout=NFT_TIMEOUT_S,
            check=False,
        )


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""
