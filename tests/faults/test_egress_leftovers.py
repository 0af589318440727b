"""The network of a daemon that ends: namespaces, links and rules are gone, however it ended."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.events import Stream, streamed
from tests.internet_runner import InternetRunner
from tests.jail.internet import PORT, PUBLIC, Internet
from tests.leftovers import TEST_UID, cgroups_of, processes_of, settled

Begin = Callable[[InternetRunner], Awaitable[InternetRunner]]
FORWARDING = ("ipv4/ip_forward", "ipv6/conf/all/forwarding")
#: Shows that it is connected, then stays.
STAYS = f"""
import socket, sys, time
peer = socket.create_connection(('{PUBLIC[0]}', {PORT}))
print('connected', flush=True)
time.sleep(60)
"""
ONCE = STAYS.partition("time.sleep")[0]


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    """Starts daemons that a test may end by itself; ends those that it did not."""
    begun: list[InternetRunner] = []

    async def _begin(daemon: InternetRunner) -> InternetRunner:
        begun.append(daemon)
        await daemon.start()
        return daemon

    yield _begin
    for daemon in begun:
        await daemon.kill()


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    with Internet(tmp_path_factory.mktemp("internet")) as internet:
        yield internet


def state(internet: Internet) -> tuple[list[str], str, list[str]]:
    """Links that are not the test's, the rules, and the kernel's forwarding switches."""
    shown = internet.host.run("ip", "-br", "link").splitlines()
    names = [line.split()[0].partition("@")[0] for line in shown]
    own = [name for name in names if name not in ("lo", "uplink", "lan")]
    switches = [internet.host.run("cat", f"/proc/sys/net/{each}").strip() for each in FORWARDING]
    return own, internet.host.run("nft", "list", "ruleset"), switches


CLEAN = ([], "", ["0", "0"])


async def cleaned(internet: Internet) -> tuple[list[str], str, list[str]]:
    """The state, once it is clean: a dead namespace's links go in the kernel's own time."""
    ends = time.monotonic() + 5
    while (seen := state(internet)) != CLEAN and time.monotonic() < ends:
        await asyncio.sleep(0.05)
    return seen


async def connected(stream: Stream) -> None:
    assert (await stream.until("stdout")).data["data"] == "connected\n"


async def test_nothing_of_it_is_left_after_a_stop(
    internet: Internet, fast_dir: Path, begin: Begin
) -> None:
    assert state(internet) == CLEAN
    daemon = await begin(InternetRunner(internet, fast_dir / "data"))
    async with streamed(daemon, STAYS, language="python") as stream:
        await connected(stream)
        links, rules, switches = state(internet)
        assert len(links) == 1 and "table" in rules and switches == ["1", "1"]
        os.kill(daemon.pid, signal.SIGTERM)
        assert (await stream.rest())[-1].data["run"]["outcome"]["kind"] == "cancelled"
    assert await daemon.ended() == -signal.SIGTERM
    assert await cleaned(internet) == CLEAN


async def test_a_killed_daemon_leaves_nothing_that_its_next_start_does_not_clear(
    internet: Internet, fast_dir: Path, begin: Begin
) -> None:
    daemon = await begin(InternetRunner(internet, fast_dir / "data"))
    async with streamed(daemon, STAYS, language="python") as stream:
        await connected(stream)
        os.kill(daemon.pid, signal.SIGKILL)
        with pytest.raises((AssertionError, aiohttp.ClientError)):
            await stream.until("result")
    await daemon.kill()
    assert await settled(lambda: processes_of(TEST_UID), []) == []
    # The rules are what is left: they shut in whoever might still live.
    assert "table" in state(internet)[1]
    again = await begin(InternetRunner(internet, fast_dir / "data"))
    try:
        assert state(internet)[0] == []
        reply = await again.execute(ONCE)
        assert reply.json["run"]["stdout"] == "connected\n"
        assert internet.host.run("nft", "list", "tables").count("table") == 1
    finally:
        await again.stop()
    assert await cleaned(internet) == CLEAN
    assert not cgroups_of(fast_dir / "data")


async def test_a_run_that_ends_takes_its_link_with_it(internet: Internet, fast_dir: Path) -> None:
    async with InternetRunner(internet, fast_dir / "data") as daemon:
        for code in (ONCE, STAYS, "raise SystemExit(3)"):
            await daemon.execute(code, run_timeout=500)
            assert state(internet)[0] == []
