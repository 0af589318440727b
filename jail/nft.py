"""The nftables ruleset of the egress network, as text. Pure: nothing here runs nft.

One table per owner holds all of it, so that one delete undoes it. What a jail sends meets, in this
order: is the source address its own (`spoofed`); is it DNS for one of our fixed resolver addresses
(`resolve`, which points it at the real one); is it for this host (`to_host`: no) or for somewhere
else (`outward`: only TCP and UDP to globally reachable unicast addresses). Nothing comes in but
answers (`inward`). A jail is recognised by the name of the host's end of its veth pair.

A refusal is an answer, so that programs fail at once: a reset for TCP, for the rest ICMP
"administratively prohibited". Resets because the kernel rations ICMP errors, to about one a second
and peer, and a program that opens twenty connections would wait for the rest to time out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

#: IANA's special-purpose IPv4 registry, except what it calls globally reachable.
SPECIAL_IPV4: tuple[IPv4Network, ...] = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # RFC 791: this network
        "10.0.0.0/8",  # RFC 1918: private
        "100.64.0.0/10",  # RFC 6598: carrier-grade NAT
        "127.0.0.0/8",  # RFC 1122: loopback
        "169.254.0.0/16",  # RFC 3927: link-local, where clouds keep their metadata
        "172.16.0.0/12",  # RFC 1918: private
        "192.0.0.0/24",  # RFC 6890: protocol assignments
        "192.0.2.0/24",  # RFC 5737: documentation
        "192.88.99.0/24",  # RFC 7526: 6to4 relays, deprecated
        "192.168.0.0/16",  # RFC 1918: private
        "198.18.0.0/15",  # RFC 2544: benchmarks, and our own jails
        "198.51.100.0/24",  # RFC 5737: documentation
        "203.0.113.0/24",  # RFC 5737: documentation
        "224.0.0.0/4",  # RFC 5771: multicast
        "240.0.0.0/4",  # RFC 1112: reserved, with the broadcast address
    )
)

#: All that is allocated for global unicast (RFC 4291, IANA): what lies outside is refused without
#: a list, so loopback, v4-mapped, 64:ff9b::/96 (which embeds IPv4), fc00::/7, fe80::/10, ff00::/8.
GLOBAL_IPV6 = IPv6Network("2000::/3")

#: What is special inside of it.
SPECIAL_IPV6: tuple[IPv6Network, ...] = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # RFC 2928: protocol assignments; Teredo (embeds IPv4), ORCHID, benchmarks
        "2001:db8::/32",  # RFC 3849: documentation
        "2002::/16",  # RFC 3056: 6to4, embeds IPv4
        "3fff::/20",  # RFC 9637: documentation
    )
)

#: Connections one jail may have at once. The table that counts them belongs to the whole host, and
#: the daemon's own clients need room in it too.
CONNECTIONS_MAX = 1024

#: Comments that say what the kernel's forwarding switch was before us; see `was_off`.
_WAS_OFF = {4: "ipv4 forwarding was off", 6: "ipv6 forwarding was off"}


@dataclass(frozen=True, slots=True)
class Resolver:
    """A nameserver: the fixed address a jail knows, and where the host really resolves."""

    inside: IPv4Address | IPv6Address
    upstream: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Plan:
    """What the ruleset is to hold. `forwarding_was_off` names the IP versions (4, 6)."""

    table: str
    interface_prefix: str
    inside4: IPv4Network
    inside6: IPv6Network
    resolvers: tuple[Resolver, ...]
    forwarding_was_off: frozenset[int]


def remove(table: str) -> str:
    """Deletes the table, whether it is there or not (`delete` alone fails where it is not)."""
    return f"table inet {table}\ndelete table inet {table}\n"


def was_off(listing: str) -> frozenset[int]:
    """The IP versions whose forwarding was off before the ruleset that nft lists here.

    The guard rule that such a version gets is the record of it: it survives a daemon that was
    killed, and is gone when the switch has been put back.
    """
    return frozenset(version for version, text in _WAS_OFF.items() if f'"{text}"' in listing)


def render(plan: Plan) -> str:
    """The whole ruleset, as one transaction that replaces an earlier one of the same table."""
    jail = f'"{plan.interface_prefix}*"'
    return f"""{remove(plan.table)}
table inet {plan.table} {{
    set special4 {{
        type ipv4_addr; flags interval; auto-merge
        elements = {{ {_listed(SPECIAL_IPV4)} }}
    }}
    set special6 {{
        type ipv6_addr; flags interval; auto-merge
        elements = {{ {_listed(SPECIAL_IPV6)} }}
    }}
    set connections {{ type ifname; flags dynamic; size 65535; }}

    chain spoofed {{
        type filter hook prerouting priority raw; policy accept;
        iifname {jail} fib saddr . iif oif missing drop
    }}
    chain resolve {{
        type nat hook prerouting priority dstnat; policy accept;
{_lines(f"iifname {jail} {_redirect(resolver)}" for resolver in plan.resolvers)}
    }}
    chain input {{
        type filter hook input priority filter; policy accept;
        iifname {jail} goto to_host
    }}
    chain to_host {{
{_lines(_resolved(resolver) for resolver in plan.resolvers)}
        icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} ip6 hoplimit 255 accept
        goto refuse
    }}
    chain forward {{
        type filter hook forward priority filter; policy accept;
        iifname {jail} oifname {jail} goto refuse
        iifname {jail} goto outward
        oifname {jail} goto inward
{_lines(_guard(version) for version in sorted(plan.forwarding_was_off))}
    }}
    chain outward {{
        ct state invalid drop
{_lines(_resolved(resolver) for resolver in plan.resolvers)}
        ip daddr @special4 goto refuse
        ip6 daddr != {GLOBAL_IPV6} goto refuse
        ip6 daddr @special6 goto refuse
        meta l4proto != {{ tcp, udp }} goto refuse
        ct state new add @connections {{ iifname ct count over {CONNECTIONS_MAX} }} goto refuse
        accept
    }}
    chain inward {{
        ct state established,related accept
        drop
    }}
    chain refuse {{
        meta l4proto tcp reject with tcp reset
        reject with icmpx admin-prohibited
    }}
    chain translate {{
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr {plan.inside4} oifname != {jail} masquerade
        ip6 saddr {plan.inside6} oifname != {jail} masquerade
    }}
}}
"""


def _redirect(resolver: Resolver) -> str:
    family = _family(resolver)
    return (
        f"{family} daddr {resolver.inside} meta l4proto {{ tcp, udp }} th dport 53 "
        f"dnat {family} to {resolver.upstream}"
    )


def _resolved(resolver: Resolver) -> str:
    """What `resolve` has redirected, and only that: nobody gets to the upstream by its own name."""
    family = _family(resolver)
    return (
        f"ct original {family} daddr {resolver.inside} "
        f"{family} daddr {resolver.upstream} meta l4proto {{ tcp, udp }} th dport 53 accept"
    )


def _family(resolver: Resolver) -> str:
    return "ip" if resolver.inside.version == 4 else "ip6"


def _guard(version: int) -> str:
    """A host that did not forward before us does not start to for its neighbours."""
    return f'meta nfproto ipv{version} drop comment "{_WAS_OFF[version]}"'


def _listed(networks: Iterable[IPv4Network | IPv6Network]) -> str:
    return ", ".join(str(network) for network in networks)


def _lines(rules: Iterable[str]) -> str:
    return "\n".join(f"        {rule}" for rule in rules)


def free_inside4(in_use: Iterable[IPv4Network]) -> IPv4Network | None:
    """The first range for jails that no route or address of the host overlaps; None if all do.

    Benchmark space first: nobody's LAN uses it, and unlike 100.64.0.0/10 no VPN does either.
    """
    taken = [network for network in in_use if network.prefixlen > 0]
    candidates = ("198.18.0.0/16", "198.19.0.0/16", "10.213.0.0/16", "172.29.0.0/16")
    for candidate in (IPv4Network(text) for text in candidates):
        if not any(candidate.overlaps(network) for network in taken):
            return candidate
    return None


def nameservers(resolv_conf: str) -> tuple[IPv4Address | IPv6Address, ...]:
    """The nameservers of a resolv.conf(5), three at most as in glibc.

    Link-local ones are left out: their interface cannot be said in a redirect.
    """
    found: list[IPv4Address | IPv6Address] = []
    for line in resolv_conf.splitlines():
        words = line.split()
        if len(words) < 2 or words[0] != "nameserver":
            continue
        try:
            address = ip_address(words[1])
        except ValueError:
            continue
        if not (isinstance(address, IPv6Address) and address.is_link_local):
            found.append(address)
    return tuple(found[:3])
