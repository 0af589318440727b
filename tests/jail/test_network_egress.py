"""The egress network seen from inside a real jail, on an internet of the test's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

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
    token,
)

PROTOCOLS = ("tcp", "udp")


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
    answers = jail.probe(tmp_path, targets(PUBLIC, PORT))
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


def test_no_jail_reaches_another(daemon: EgressDaemon, jail: Jail, tmp_path: Path) -> None:
    import subprocess
    import sys

    other = daemon.acquire()
    server = subprocess.Popen(
        ["nsenter", f"--net={other.path}", sys.executable, "-I",
         str(Path(__file__).with_name("internet_server.py")), str(PORT), str(tmp_path / "other")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        assert other.address6
        answers = jail.probe(tmp_path, targets((other.address4, other.address6), PORT, 53))
        assert reached(answers) == set()
        assert slow_tcp(answers) == {}
        assert (tmp_path / "other").read_text() == ""
    finally:
        server.kill()
        server.communicate()
        daemon.ask(f"release {other.index}")


def test_nothing_comes_in_that_the_jail_did_not_ask_for(
    internet: Internet, jail: Jail, tmp_path: Path
) -> None:
    internet.world.run("ip", "route", "add", "198.18.0.0/16", "via", "10.77.0.2")
    answers = probe_from(internet.world, targets((jail.address4,), PORT))
    assert reached(answers) == set()
    # A refusal would mean that the jail's own kernel answered.
    assert all(answer.startswith("timeout/") for answer in answers.values()), answers


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
