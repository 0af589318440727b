"""The ruleset as text, and the arithmetic it is filled in with."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jail import nft


def let_out(address: IPv4Address | IPv6Address) -> bool:
    """What the chain `outward` says of an address."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in nft.SPECIAL_IPV4)
    return address in nft.GLOBAL_IPV6 and not any(address in each for each in nft.SPECIAL_IPV6)


def plan(**changes: object) -> nft.Plan:
    values: dict[str, object] = {
        "table": "the_table",
        "interface_prefix": "sjabcdef-",
        "inside4": IPv4Network("198.18.0.0/16"),
        "inside6": IPv6Network("fd12:3456:789a::/64"),
        "resolvers": (),
        "forwarding_was_off": frozenset(),
    }
    return nft.Plan(**(values | changes))  # type: ignore[arg-type]


@given(st.ip_addresses())
@example(ip_address("169.254.169.254"))
@example(ip_address("192.0.0.192"))
@example(ip_address("fd00:ec2::254"))
def test_only_globally_reachable_unicast_is_let_out(address: IPv4Address | IPv6Address) -> None:
    if let_out(address):
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=4))
def test_an_ipv6_address_never_smuggles_a_forbidden_ipv4_address(inner: IPv4Address) -> None:
    number = int(inner)
    translated = [
        IPv6Address(number),  # ::/96, v4-compatible
        IPv6Address(0xFFFF << 32 | number),  # ::ffff:0:0/96, v4-mapped
        IPv6Address(0x64_FF9B << 96 | number),  # 64:ff9b::/96, NAT64
        IPv6Address(0x2002 << 112 | number << 80),  # 2002::/16, 6to4
        IPv6Address(0x2001_0000 << 96 | number ^ 0xFFFFFFFF),  # 2001::/32, Teredo
    ]
    assert not any(let_out(address) for address in translated)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "9.255.255.255", "11.0.0.0", "172.32.0.1", "223.255.255.255",
                "2606:4700::1111", "2a00:1450::1", "2001:200::1", "2003::1", "2000::"]
)  # fmt: skip
def test_the_public_internet_is_let_out(address: str) -> None:
    assert let_out(ip_address(address))


def test_every_special_range_is_in_the_rules() -> None:
    rules = nft.render(plan())
    for network in (*nft.SPECIAL_IPV4, *nft.SPECIAL_IPV6, nft.GLOBAL_IPV6):
        assert str(network) in rules


def test_a_ruleset_replaces_itself_in_one_transaction() -> None:
    rules = nft.render(plan())
    assert rules.startswith("table inet the_table\ndelete table inet the_table\n")
    assert rules.count("table inet the_table {") == 1


@pytest.mark.parametrize("versions", [(), (4,), (6,), (4, 6)])
def test_the_rules_remember_what_the_switches_were(versions: tuple[int, ...]) -> None:
    rules = nft.render(plan(forwarding_was_off=frozenset(versions)))
    assert nft.was_off(rules) == set(versions)


def test_only_what_was_redirected_may_reach_a_nameserver() -> None:
    resolver = nft.Resolver(ip_address("198.18.0.53"), ip_address("10.0.0.2"))
    rules = nft.render(plan(resolvers=(resolver,)))
    accepting = [line.strip() for line in rules.splitlines() if "10.0.0.2" in line]
    assert len(accepting) == 3
    assert all("th dport 53" in line and "ip daddr 198.18.0.53" in line for line in accepting)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("nameserver 10.0.0.2\n", ["10.0.0.2"]),
        ("# nameserver 1.1.1.1\n;nameserver 1.1.1.1\nsearch nameserver\n", []),
        ("nameserver\t8.8.8.8 # why\nnameserver 2001:4860::8\n", ["8.8.8.8", "2001:4860::8"]),
        ("nameserver fe80::1%eth0\nnameserver fe80::1\nnameserver nonsense\nnameserver\n", []),
        ("nameserver 10.0.0.0/8\nnameserver 10.0.0.2\n", ["10.0.0.2"]),
        ("".join(f"nameserver 1.0.0.{n}\n" for n in "12345"), ["1.0.0.1", "1.0.0.2", "1.0.0.3"]),
    ],
)  # fmt: skip
def test_nameservers_are_read_as_the_resolver_reads_them(text: str, expected: list[str]) -> None:
    assert [str(address) for address in nft.nameservers(text)] == expected


def test_the_range_for_jails_overlaps_nothing_of_the_host() -> None:
    def free(*in_use: str) -> str:
        return str(nft.free_inside4(IPv4Network(text) for text in in_use))

    assert free() == free("0.0.0.0/0", "10.0.0.0/8") == "198.18.0.0/16"
    assert free("198.18.7.1/32") == "198.19.0.0/16"
    assert free("198.18.0.0/15") == "10.213.0.0/16"
    assert free("198.18.0.0/15", "10.0.0.0/8") == "172.29.0.0/16"
    assert free("198.18.0.0/15", "10.0.0.0/8", "172.16.0.0/12") == "None"
