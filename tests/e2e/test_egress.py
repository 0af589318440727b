"""RUNNER_NETWORK as programs meet it, through POST /execute on a real daemon.

The daemon lives on an internet of the test's own (`tests.jail.internet`): what a jail is let out to
answers, and what it is not let out to is there too and would answer.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conftest import SESSION
from tests.events import streamed
from tests.internet_runner import RUNNER_PORT, InternetRunner, here
from tests.jail import internet as net
from tests.jail.internet import FORBIDDEN, HOST, PORT, PUBLIC, RESOLVER, Internet, token
from tests.leftovers import assert_nothing_left, cgroups_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROBE = Path(net.__file__).with_name("internet_probe.py").read_text("utf-8")
PROTOCOLS = ("tcp", "udp")
Targets = list[tuple[str, str, int]]


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    with Internet(tmp_path_factory.mktemp("internet")) as internet:
        yield internet


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="sandbox-runner-test-", dir="/dev/shm"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(internet: Internet, root: Path) -> AsyncIterator[InternetRunner]:
    daemon = InternetRunner(internet, root / "connected")
    home = here()
    async with daemon:
        yield daemon
        await assert_nothing_left(daemon.data_root)
    assert not cgroups_of(daemon.data_root)
    assert here() == home, "this process has not moved"


def targets(addresses: tuple[str, ...], *ports: int) -> Targets:
    return [(protocol, a, port) for protocol in PROTOCOLS for a in addresses for port in ports]


async def probe(
    daemon: InternetRunner, wanted: Targets, *, session: str | None = None
) -> dict[str, str]:
    """What a program was answered by each target."""
    reply = await daemon.execute(PROBE, session=session, stdin=json.dumps(wanted))
    run = reply.json["run"]
    assert (run["outcome"]["kind"], run["code"]) == ("exited", 0), run
    answers: dict[str, str] = json.loads(run["stdout"])
    return answers


def reached(answers: dict[str, str]) -> set[str]:
    return {name for name, answer in answers.items() if answer.startswith("ok ")}


@pytest.mark.parametrize("session", [None, SESSION], ids=["stateless", "in a session"])
async def test_a_public_host_is_reached_by_tcp_and_udp_and_ipv6(
    connected: InternetRunner, session: str | None
) -> None:
    answers = await probe(connected, targets(PUBLIC, PORT), session=session)
    seen = {name: answer.rpartition("/")[0] for name, answer in answers.items()}
    assert seen == {
        token(protocol, address, PORT): "ok 2600:1f18:1::2" if ":" in address else "ok 10.77.0.2"
        for protocol in PROTOCOLS
        for address in PUBLIC
    }


async def test_names_are_resolved(connected: InternetRunner) -> None:
    answers = await probe(connected, [("resolve", "www.example.org", 80)])
    assert answers["resolve/www.example.org/80"].startswith(f"ok {PUBLIC[1]},{PUBLIC[0]}") or (
        answers["resolve/www.example.org/80"].startswith(f"ok {PUBLIC[0]},{PUBLIC[1]}")
    )


async def test_private_ranges_and_the_metadata_address_are_not_reached(
    internet: Internet, connected: InternetRunner
) -> None:
    assert "169.254.169.254" in FORBIDDEN and "fd00:ec2::254" in FORBIDDEN
    wanted = targets(FORBIDDEN, PORT) + targets((RESOLVER,), 53)
    on_host = reached(net.probe_from(internet.host, targets(FORBIDDEN, PORT)))
    assert len(on_host) == 2 * len(FORBIDDEN), "all of them are there, and answer the host"
    internet.world.record.write_text("")
    assert reached(await probe(connected, wanted)) == set()
    assert internet.world.heard() == set()


async def test_the_daemon_is_not_reached_on_any_address_of_its_host(
    internet: Internet, connected: InternetRunner, root: Path
) -> None:
    addresses = (*HOST, "198.18.0.1", "fe80::1%eth0", "127.0.0.1", "::1", "0.0.0.0")
    wanted: Targets = [
        ("tcp", address, port) for address in addresses for port in (RUNNER_PORT, RUNNER_PORT + 1)
    ]
    both = {"RUNNER_HOST": "::", "RUNNER_PORT": str(RUNNER_PORT + 1), "RUNNER_NETWORK": "none"}
    async with InternetRunner(internet, root / "ipv6", **both):
        # To who is not in a jail they answer, if only that this is not HTTP.
        there = net.probe_from(internet.world, [t for t in wanted if t[1] in HOST])
        assert len(reached(there)) == len(HOST), there
        answers = await probe(connected, wanted)
    # Refused at once, each of them: nothing hangs on it.
    assert {answer.partition("/")[0] for answer in answers.values()} <= {
        "ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL",
    }, answers  # fmt: skip
    assert all(float(answer.rpartition("/")[2]) < 0.5 for answer in answers.values()), answers


LISTEN = f"""
import json, socket, struct, subprocess, sys, time
server = socket.create_server(('::', {PORT}), family=socket.AF_INET6, dualstack_ipv6=True)
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probe.connect(('{PUBLIC[0]}', 9))
own = [probe.getsockname()[0]]
probe = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
probe.connect(('{PUBLIC[1]}', 9))
own.append(probe.getsockname()[0])
print(json.dumps(own), flush=True)
server.settimeout(20)
try:
    print('called', server.accept(), flush=True)
except TimeoutError:
    pass
"""


async def test_no_jail_reaches_another(connected: InternetRunner) -> None:
    async with streamed(connected, LISTEN, language="python") as stream:
        addresses = json.loads((await stream.until("stdout")).data["data"])
        assert addresses[0].startswith("198.18.") and ":" in addresses[1]
        answers = await probe(connected, targets(tuple(addresses), PORT, 22))
        assert reached(answers) == set()


async def test_eight_jobs_at_once_each_have_an_address_of_their_own(
    connected: InternetRunner,
) -> None:
    code = LISTEN.partition("server.settimeout")[0] + "time.sleep(0.5)"
    replies = await asyncio.gather(*(connected.execute(code) for _ in range(8)))
    own = [tuple(json.loads(reply.json["run"]["stdout"])) for reply in replies]
    assert len({address for pair in own for address in pair}) == 16


async def test_a_program_can_change_nothing_of_its_network(connected: InternetRunner) -> None:
    code = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
for option in (socket.SO_MARK, 25):
    try:
        s.setsockopt(socket.SOL_SOCKET, option, b'lo\\0\\0')
        print('set', option)
    except OSError as error:
        print(error.errno)
try:
    s.bind(('198.18.0.1', 1))
except OSError as error:
    print(error.errno)
"""
    lines = (await connected.execute(code)).json["run"]["stdout"].splitlines()
    # EPERM; SO_BINDTODEVICE of one's own interface is harmless; the gateway is not its address.
    assert lines[0] == "1" and lines[2] in ("99", "13"), lines


async def test_with_none_only_loopback_is_there(internet: Internet, root: Path) -> None:
    async with InternetRunner(
        internet, root / "none", RUNNER_NETWORK="none", RUNNER_PORT="8091"
    ) as daemon:
        wanted = targets((*PUBLIC, *HOST, "169.254.169.254", "127.0.0.1", "::1"), PORT)
        wanted += [("tcp", address, RUNNER_PORT) for address in (*HOST, "127.0.0.1", "::1")]
        assert reached(await probe(daemon, wanted)) == set()
        code = "import socket; print([name for _, name in socket.if_nameindex()])"
        assert (await daemon.execute(code)).json["run"]["stdout"] == "['lo']\n"
