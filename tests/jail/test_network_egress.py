"""The egress network seen from inside a real jail, on an internet of the test's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv6Network, ip_address
from pathlib import Path

import pytest

from jail.nft import CONNECTIONS_MAX
from tests.jail.internet import (
    DAEMON_PORT,
    FORBIDDEN,
    HOST,
    LAN,
    PORT,
    PUBLIC,
    RESOLVER,
    EgressDaemon,
    Internet,
    Jail,
    probe_from,
    start_host,
    token,
)

PROTOCOLS = ("tcp", "udp")
#: For those that are to be answered.
PATIENT_S = 10.0


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    with Internet(tmp_path_factory.mktemp("internet")) as internet:
        yield internet


@pytest.fixture(scope="module")
def daemon(internet: Internet) -> Iterator[EgressDaemon]:
    daemon = internet.daemon()
    yield daemon
    daemon.stop()


@pytest.fixture(scope="module")
def jail(daemon: EgressDaemon) -> Jail:
    return daemon.acquire()


def targets(addresses: tuple[str, ...], *ports: int) -> list[tuple[str, str, int]]:
    return [(protocol, a, port) for protocol in PROTOCOLS for a in addresses for port in ports]


def reached(answers: dict[str, str]) -> set[str]:
    return {name for name, answer in answers.items() if answer.startswith("ok ")}


def slow_tcp(answers: dict[str, str]) -> dict[str, str]:
    """TCP attempts that were neither let through nor refused at once."""
    return {
        name: answer
        for name, answer in answers.items()
        if name.startswith("tcp/")
        and not (answer.startswith("ECONNREFUSED/") and answer < "ECONNREFUSED/0.5")
    }


def wait_until(done: Callable[[], bool], patience_s: float = 5.0) -> None:
    deadline = time.monotonic() + patience_s
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_public_host_is_reached_and_sees_the_address_of_the_host(
    jail: Jail, tmp_path: Path
) -> None:
    answers = jail.probe(tmp_path, targets(PUBLIC, PORT), patience_s=PATIENT_S)
    seen = {name: answer.rpartition("/")[0] for name, answer in answers.items()}
    assert seen == {
        token(protocol, address, PORT): "ok 2600:1f18:1::2" if ":" in address else "ok 10.77.0.2"
        for protocol in PROTOCOLS
        for address in PUBLIC
    }


def test_private_link_local_and_embedded_addresses_are_not_reached(
    internet: Internet, jail: Jail, tmp_path: Path
) -> None:
    wanted = targets(FORBIDDEN, PORT) + targets((RESOLVER,), 53)
    from_host = reached(probe_from(internet.host, targets(FORBIDDEN, PORT)))
    assert from_host == {token(*target) for target in targets(FORBIDDEN, PORT)}, (
        "the test's internet"
    )
    internet.world.record.write_text("")
    answers = jail.probe(tmp_path, wanted)
    assert reached(answers) == set()
    assert slow_tcp(answers) == {}
    assert internet.world.heard() == set()


def test_the_daemon_is_not_reached_on_any_address_of_the_host(
    internet: Internet, jail: Jail, tmp_path: Path
) -> None:
    gateway = "198.18.0.1"
    addresses = (*HOST, gateway, "fe80::1%eth0", "127.0.0.1", "::1", "0.0.0.0")
    wanted = targets(addresses, DAEMON_PORT)
    on_host = reached(
        probe_from(internet.world, targets(("10.77.0.2", "2600:1f18:1::2"), DAEMON_PORT))
    )
    assert len(on_host) == 4, (
        "the daemon serves, and its own clients reach it while there is egress"
    )
    internet.host.record.write_text("")
    answers = jail.probe(tmp_path, wanted)
    assert reached(answers) == set()
    assert slow_tcp(answers) == {}
    assert internet.host.heard() == set()


@dataclass
class Listener:
    """A jail in which something listens."""

    jail: Jail
    record: Path


@pytest.fixture(scope="module")
def listener(daemon: EgressDaemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    jail = daemon.acquire()
    host = start_host(jail.path, tmp_path_factory.mktemp("listener") / "record", PORT)
    yield Listener(jail, host.record)
    host.stop()
    daemon.ask(f"release {jail.index}")


def test_no_jail_reaches_another(jail: Jail, listener: Listener, tmp_path: Path) -> None:
    assert listener.jail.address6 is not None
    addresses = (listener.jail.address4, listener.jail.address6)
    answers = jail.probe(tmp_path, targets(addresses, PORT, 53))
    assert reached(answers) == set()
    assert slow_tcp(answers) == {}
    assert listener.record.read_text() == ""


def test_nothing_comes_in_that_the_jail_did_not_ask_for(
    internet: Internet, listener: Listener
) -> None:
    assert listener.jail.address6 is not None
    prefix6 = str(IPv6Network((listener.jail.address6, 64), strict=False))
    for prefix, host in (("198.18.0.0/16", "10.77.0.2"), (prefix6, "2600:1f18:1::2")):
        internet.world.run("ip", "route", "replace", prefix, "via", host)
    addresses = (listener.jail.address4, listener.jail.address6)
    assert reached(probe_from(internet.world, targets(addresses, PORT))) == set()
    assert listener.record.read_text() == ""


FORGE = """
import socket, sys
target4, target6, *sources = sys.argv[1:]
for source in sources:
    family, target = (socket.AF_INET6, target6) if ":" in source else (socket.AF_INET, target4)
    sender = socket.socket(family, socket.SOCK_DGRAM)
    sender.setsockopt(*((41, 75) if ":" in source else (0, 19)), 1)  # IP(V6)_TRANSPARENT
    if source != "own":
        sender.bind((source, 0))
    sender.sendto(source.encode(), (target, 7777))
"""


def test_a_forged_source_address_goes_nowhere(internet: Internet, daemon: EgressDaemon) -> None:
    jail = daemon.acquire()
    assert jail.address6 is not None
    neighbour4, neighbour6 = (ip_address(own) + 1 for own in (jail.address4, jail.address6))
    forged6 = ["fd00::77", str(neighbour6), "2600:1f18:1::2"]
    for address in forged6:
        assert jail.run("ip", "addr", "add", address, "dev", "eth0", "nodad").returncode == 0
    forged = [str(neighbour4), "198.18.0.1", "10.77.0.2", "8.8.8.8", *forged6]
    internet.world.record.write_text("")
    ran = jail.run("python3", "-I", "-c", FORGE, *PUBLIC, *forged, "own", jail.address6)
    assert ran.returncode == 0, ran.stderr
    genuine = {"own", jail.address6}
    wait_until(lambda: genuine <= internet.world.heard())
    assert internet.world.heard() == genuine
    daemon.ask(f"release {jail.index}")


PING = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
sender.settimeout(0.5)
sender.sendto(bytes.fromhex("0800f7fd00010001"), (sys.argv[1], 0))
print(sender.recv(512)[20])
"""


def test_only_tcp_and_udp_get_out(internet: Internet, jail: Jail) -> None:
    ping = ("python3", "-I", "-c", PING, PUBLIC[0])
    assert internet.host.run(*ping) == "0\n", "an echo reply"
    refused = jail.run(*ping)
    assert (refused.stdout, refused.returncode) == ("3\n", 0), "destination unreachable"


SCATTER = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(20000, 21200):
    sender.sendto(b"x", (sys.argv[1], port))
"""


def test_a_jail_cannot_fill_the_hosts_table_of_connections(
    internet: Internet, daemon: EgressDaemon, jail: Jail, tmp_path: Path
) -> None:
    greedy = daemon.acquire()
    before = connections(internet)
    assert greedy.run("python3", "-I", "-c", SCATTER, PUBLIC[0]).returncode == 0
    assert 1000 <= connections(internet) - before <= CONNECTIONS_MAX + 16
    answers = jail.probe(tmp_path, targets(PUBLIC, PORT), patience_s=PATIENT_S)
    assert len(reached(answers)) == 4
    daemon.ask(f"release {greedy.index}")


def connections(internet: Internet) -> int:
    return int(internet.host.run("cat", "/proc/sys/net/netfilter/nf_conntrack_count"))


def test_many_forbidden_connections_are_all_refused_at_once(jail: Jail, tmp_path: Path) -> None:
    wanted = [("tcp", "10.9.9.9", port) for port in range(9000, 9060)]
    assert slow_tcp(jail.probe(tmp_path, wanted)) == {}


def test_names_are_resolved_through_a_fixed_address_of_the_jails_own(
    internet: Internet, jail: Jail, tmp_path: Path
) -> None:
    assert jail.resolv_conf == "nameserver 198.18.0.53\n"
    internet.world.record.write_text("")
    answers = jail.probe(
        tmp_path,
        [
            ("resolve", "example.test", 0),
            ("tcp", "example.test", PORT),
            ("tcp", "198.18.0.53", PORT),
        ],
    )
    assert answers["resolve/example.test/0"].startswith(f"ok {','.join(sorted(PUBLIC))}/")
    assert reached(answers) == {"resolve/example.test/0", f"tcp/example.test/{PORT}"}
    assert "dns" in internet.world.heard()


def test_the_host_forwards_for_nobody_but_jails(
    internet: Internet, jail: Jail, tmp_path: Path
) -> None:
    assert internet.host.run("cat", "/proc/sys/net/ipv4/ip_forward") == "1\n"
    assert reached(probe_from(internet.world, targets((LAN,), PORT))) == set()
    assert reached(probe_from(internet.lan, targets((PUBLIC[0],), PORT))) == set()
    assert reached(jail.probe(tmp_path, targets((LAN,), PORT))) == set()
