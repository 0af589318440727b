"""What the egress network leaves on a host: nothing, however it ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv6Network
from pathlib import Path

import pytest

from jail.errors import NetworkUnavailable
from jail.firewall import Firewall
from tests.jail.internet import PORT, PUBLIC, RESOLVER, EgressDaemon, Host, Internet, Jail

SWITCHES = ("ipv4/ip_forward", "ipv6/conf/all/forwarding")


@pytest.fixture(scope="module")
def shared_internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    with Internet(tmp_path_factory.mktemp("internet")) as internet:
        yield internet


@pytest.fixture
def internet(shared_internet: Internet) -> Iterator[Internet]:
    """As new for each test; and after each, as new again."""
    assert left_on(shared_internet.host) == ([], "")
    yield shared_internet
    assert left_on(shared_internet.host) == ([], "")
    shared_internet.resolv_conf.write_text(f"nameserver {RESOLVER}\n")


@pytest.fixture
def start(internet: Internet) -> Iterator[Callable[..., EgressDaemon]]:
    daemons: list[EgressDaemon] = []

    def started(owner: str = "the-owner") -> EgressDaemon:
        daemons.append(internet.daemon(owner))
        assert daemons[-1].opened == {"opened": True}
        return daemons[-1]

    yield started
    for daemon in daemons:
        if daemon.process.poll() is None:
            daemon.stop()


@pytest.fixture
def inhabitant() -> Iterator[Callable[[Jail], subprocess.Popen[bytes]]]:
    """Starts a process that keeps a namespace alive."""
    processes: list[subprocess.Popen[bytes]] = []

    def moved_in(jail: Jail) -> subprocess.Popen[bytes]:
        processes.append(subprocess.Popen(["nsenter", f"--net={jail.path}", "sleep", "60"]))
        home = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{processes[-1].pid}/ns/net") != home)
        return processes[-1]

    yield moved_in
    for process in processes:
        process.kill()
        process.wait()


def wait_until(done: Callable[[], bool], patience_s: float = 5.0) -> bool:
    deadline = time.monotonic() + patience_s
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)
    return done()


def links(host: Host) -> list[str]:
    """The links of the host that are not the test's."""
    names = [
        line.split()[0].partition("@")[0] for line in host.run("ip", "-br", "link").splitlines()
    ]
    return [name for name in names if name not in ("lo", "uplink", "lan")]


def left_on(host: Host) -> tuple[list[str], str]:
    # The kernel takes the links of a dead namespace down in its own time.
    wait_until(lambda: links(host) == [])
    return links(host), host.run("nft", "list", "ruleset")


def switches(host: Host) -> list[str]:
    return [host.run("cat", f"/proc/sys/net/{name}").strip() for name in SWITCHES]


def interfaces_of(process: subprocess.Popen[bytes]) -> str:
    command = ["nsenter", f"--net=/proc/{process.pid}/ns/net", "ip", "-br", "link"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_released_namespace_has_no_network_even_for_who_still_lives_in_it(
    internet: Internet,
    start: Callable[..., EgressDaemon],
    inhabitant: Callable[..., subprocess.Popen[bytes]],
) -> None:
    daemon = start()
    jail = daemon.acquire()
    process = inhabitant(jail)
    assert "eth0" in interfaces_of(process)
    daemon.ask(f"release {jail.index}")
    assert "eth0" not in interfaces_of(process)
    assert links(internet.host) == []
    assert not os.path.exists(jail.path)
    assert daemon.ask(f"release {jail.index}") == {"released": True}, "twice is fine"


def test_closing_takes_the_rules_away_and_puts_the_switches_back(
    internet: Internet, start: Callable[..., EgressDaemon]
) -> None:
    assert switches(internet.host) == ["0", "0"]
    daemon = start()
    daemon.acquire()
    assert switches(internet.host) == ["1", "1"]
    daemon.stop()
    assert switches(internet.host) == ["0", "0"]
    assert left_on(internet.host) == ([], "")


def test_a_killed_daemon_leaves_nothing_that_its_next_start_does_not_clear(
    internet: Internet,
    start: Callable[..., EgressDaemon],
    inhabitant: Callable[..., subprocess.Popen[bytes]],
) -> None:
    killed = start()
    survivor = inhabitant(killed.acquire())
    killed.acquire()
    killed.kill()
    # What nobody lives in is gone by itself; what somebody lives in still has its rules.
    assert wait_until(lambda: len(links(internet.host)) == 1)
    assert "to_host" in internet.host.run("nft", "list", "ruleset")
    daemon = start()
    assert "eth0" not in interfaces_of(survivor)
    assert links(internet.host) == []
    assert internet.host.run("nft", "list", "tables").count("\n") == 1
    daemon.stop()
    assert switches(internet.host) == ["0", "0"], "the switches are as before the first start"


def test_what_forwarded_before_forwards_after(
    internet: Internet, start: Callable[..., EgressDaemon]
) -> None:
    internet.host.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    try:
        daemon = start()
        ruleset = internet.host.run("nft", "list", "ruleset")
        assert "ipv4 forwarding was off" not in ruleset
        assert "ipv6 forwarding was off" in ruleset
        daemon.stop()
        assert switches(internet.host) == ["1", "0"]
    finally:
        internet.host.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward")


def test_owners_and_other_peoples_rules_are_left_alone(
    internet: Internet, start: Callable[..., EgressDaemon]
) -> None:
    internet.host.run("nft", "add", "table", "inet", "somebody")
    first, second = start("first"), start("second")
    jail = first.acquire()
    second.acquire()
    second.kill()
    start("second").stop()
    assert links(internet.host) == [jail.interface]
    first.stop()
    tables = internet.host.run("nft", "list", "tables")
    internet.host.run("nft", "delete", "table", "inet", "somebody")
    assert tables == "table inet somebody\n"


def test_a_cancelled_acquire_leaves_no_namespace(
    internet: Internet, start: Callable[..., EgressDaemon]
) -> None:
    daemon = start()
    cancelled = [daemon.ask(f"cancel-acquire {after_ms}")["cancelled"] for after_ms in range(1, 14)]
    assert any(cancelled)
    assert wait_until(lambda: links(internet.host) == [])
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    assert wait_until(
        lambda: not [fd for fd in descriptors.iterdir() if os.readlink(fd).startswith("net:")]
    )


def test_jails_that_start_together_have_addresses_of_their_own(
    start: Callable[..., EgressDaemon],
) -> None:
    daemon = start()
    addresses = daemon.ask("acquire-many 8")["addresses"]
    assert len(set(addresses)) == 8


def test_a_nameserver_that_changes_is_followed(
    internet: Internet, start: Callable[..., EgressDaemon], tmp_path: Path
) -> None:
    internet.resolv_conf.write_text("nameserver 10.77.0.99\n")  # answers nobody
    daemon = start()
    internet.resolv_conf.write_text(
        f"search example\nnameserver {RESOLVER}\nnameserver 2600:1f18:1::1\n"
    )
    jail = daemon.acquire()
    prefix6 = IPv6Network((jail.address6, 64), strict=False)
    assert jail.resolv_conf == f"nameserver 198.18.0.53\nnameserver {prefix6[54]}\n"
    for line in jail.resolv_conf.splitlines():
        jail.resolv_conf = line + "\n"
        answers = jail.probe(tmp_path, [("resolve", "example.test", 0)])
        assert answers["resolve/example.test/0"].startswith("ok "), line


def test_a_nameserver_on_the_hosts_loopback_answers_and_nothing_else_there_does(
    internet: Internet, start: Callable[..., EgressDaemon], tmp_path: Path
) -> None:
    internet.resolv_conf.write_text("nameserver 127.0.0.1\n")
    jail = start().acquire()
    internet.host.record.write_text("")
    ports = [("tcp", "198.18.0.53", 8080), ("udp", "198.18.0.53", 8080)]
    answers = jail.probe(tmp_path, [("resolve", "example.test", 0), *ports])
    assert answers.pop("resolve/example.test/0").startswith("ok ")
    # Packets for 127.0.0.1 that only a raw socket could send: the jail's own routes out of the way.
    jail.run("ip", "link", "set", "lo", "down")
    jail.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
    jail.run("ip", "route", "del", "local", "127.0.0.0/8", "dev", "lo", "table", "local")
    jail.run("ip", "route", "del", "local", "127.0.0.1", "dev", "lo", "table", "local")
    jail.run(
        "ip", "route", "add", "127.0.0.1", "via", "198.18.0.1", "dev", "eth0", "src", jail.address4
    )
    send = (
        "import socket\nfor port in (53, 8080):\n"
        "  s = socket.socket(2, 2); s.bind((__import__('sys').argv[1], 0))\n"
        "  s.sendto(b'straight', ('127.0.0.1', port))"
    )
    assert jail.run("python3", "-I", "-c", send, jail.address4).returncode == 0
    time.sleep(0.1)
    assert not any(answer.startswith("ok ") for answer in answers.values())
    assert internet.host.heard() == {"dns"}
    assert internet.host.record.read_text().count("dns") == 2, "A and AAAA of the one name"


def test_a_host_that_forwards_still_listens_to_its_own_router(
    internet: Internet, start: Callable[..., EgressDaemon]
) -> None:
    accept_ra = ("cat", "/proc/sys/net/ipv6/conf/uplink/accept_ra")
    assert internet.host.run(*accept_ra) in ("1\n", "2\n")
    internet.host.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/uplink/accept_ra")
    start()
    assert internet.host.run(*accept_ra) == "2\n"


def test_a_jail_sends_no_larger_packets_than_the_uplink_takes(
    internet: Internet, start: Callable[..., EgressDaemon]
) -> None:
    internet.host.run("ip", "link", "set", "uplink", "mtu", "1400")
    try:
        jail = start().acquire()
        assert "mtu 1400" in jail.run("ip", "link", "show", "eth0").stdout
    finally:
        internet.host.run("ip", "link", "set", "uplink", "mtu", "1500")


def test_without_ipv6_upstream_a_jail_has_none_and_knows_at_once(
    internet: Internet, start: Callable[..., EgressDaemon], tmp_path: Path
) -> None:
    internet.host.run("ip", "-6", "route", "del", "default")
    try:
        jail = start().acquire()
        assert jail.address6 is None
        answers = jail.probe(tmp_path, [("tcp", address, PORT) for address in PUBLIC])
        assert answers[f"tcp/{PUBLIC[0]}/{PORT}"].startswith("ok ")
        assert answers[f"tcp/{PUBLIC[1]}/{PORT}"] == "ENETUNREACH/0.0"
        assert switches(internet.host) == ["1", "0"]
    finally:
        internet.host.run("ip", "route", "add", "::/0", "via", "2600:1f18:1::1")


def test_a_missing_capability_is_said_in_words(internet: Internet) -> None:
    without = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    daemon = internet.daemon(prefix=without)
    daemon.process.communicate(timeout=20)
    assert daemon.opened["unavailable"].startswith(
        ("cannot set up the egress network", "nft refused")
    )
    assert "not permitted" in daemon.opened["unavailable"]


def test_a_missing_nft_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(NetworkUnavailable, match="nft is not installed"):
        Firewall("the-owner")
