"""Input and output: nothing waits for ever, nothing is lost, a slow reader slows the program."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from jail.facts import Ending, Facts
from jail.host import JailHost
from jail.process import Jail
from jail.pump import StreamName
from tests.jail.conftest import UID, ProfileMaker, Runner, processes_of


async def test_input_larger_than_a_pipe_arrives_whole(run: Runner) -> None:
    data = bytes(range(256)) * 8_000
    facts: Facts = await run("sha256sum", stdin=data)
    assert facts.stdout.kept.split()[0].decode() == hashlib.sha256(data).hexdigest()


async def test_input_and_output_flow_at_once(run: Runner) -> None:
    data = b"x" * 200_000
    facts: Facts = await run("cat", stdin=data)
    assert facts.stdout.kept == data
    assert facts.stdout.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("script", ["exit 0", "exec 0<&-; exit 0", "head -c 10 >/dev/null"])
async def test_input_that_nobody_reads_is_no_failure(sh: Runner, script: str) -> None:
    facts: Facts = await sh(script, stdin=b"x" * 1_000_000)
    assert facts.wait_status == 0


async def test_no_input_is_the_end_of_input(run: Runner) -> None:
    facts: Facts = await run("cat")
    assert facts.wait_status == 0 and facts.stdout.kept == b""


async def test_streams_stay_apart_and_reach_the_sink_in_order(
    host: JailHost, profile: ProfileMaker
) -> None:
    got: dict[str, bytes] = {"stdout": b"", "stderr": b""}

    async def sink(stream: StreamName, data: bytes) -> None:
        got[stream] += data

    script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done"
    facts = await Jail(host, profile("sh", "-c", script), sink=sink).run()
    assert got == {"stdout": facts.stdout.kept, "stderr": facts.stderr.kept}
    assert got["stdout"] == b"out 1\nout 2\nout 3\n"


async def test_output_reaches_the_sink_while_the_command_runs(
    host: JailHost, profile: ProfileMaker
) -> None:
    first = asyncio.Event()

    async def sink(stream: StreamName, data: bytes) -> None:
        first.set()

    jail = Jail(host, profile("sh", "-c", "echo early; sleep 60"), sink=sink)
    task = asyncio.create_task(jail.run())
    await asyncio.wait_for(first.wait(), 4)
    jail.end(Ending.CANCELLED)
    assert (await task).wait_status is None


async def test_a_slow_sink_makes_a_slow_program(host: JailHost, profile: ProfileMaker) -> None:
    opened = asyncio.Event()
    taken = 0

    async def sink(stream: StreamName, data: bytes) -> None:
        nonlocal taken
        await opened.wait()
        taken += len(data)

    script = "head -c 1000000 /dev/zero; echo written >&2"
    jail = Jail(host, profile("sh", "-c", script, output_bytes=2_000_000), sink=sink)
    task = asyncio.create_task(jail.run())
    await asyncio.sleep(0.4)
    # What fits into the pipe has been written, and the program waits with the rest.
    assert not task.done() and taken == 0
    opened.set()
    facts = await task
    assert taken == 1_000_000 + len("written\n") and len(facts.stdout.kept) == 1_000_000


async def test_a_sink_gets_no_more_than_is_kept(host: JailHost, profile: ProfileMaker) -> None:
    taken = 0

    async def sink(stream: StreamName, data: bytes) -> None:
        nonlocal taken
        taken += len(data)

    await Jail(host, profile("yes", output_bytes=100_000), sink=sink).run()
    assert taken == 100_000


async def test_a_sink_that_fails_ends_the_jail_and_is_heard(
    host: JailHost, profile: ProfileMaker
) -> None:
    async def sink(stream: StreamName, data: bytes) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await Jail(host, profile("sh", "-c", "echo x; sleep 60"), sink=sink).run()
    assert processes_of(UID) == []


async def test_a_deadline_is_kept_while_the_sink_is_stuck(
    host: JailHost, profile: ProfileMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jail.supervise.DRAIN_TIMEOUT_S", 0.2)

    async def sink(stream: StreamName, data: bytes) -> None:
        await asyncio.Event().wait()

    facts = await asyncio.wait_for(
        Jail(host, profile("sh", "-c", "echo one; sleep 60", wall_ms=300), sink=sink).run(), 5
    )
    assert facts.ended_by == "deadline" and facts.stdout.kept == b"one\n"


async def test_output_written_just_before_the_end_is_not_lost(sh: Runner) -> None:
    facts: Facts = await sh("head -c 60000 /dev/zero; kill -9 $$")
    assert facts.stdout.bytes_total == 60_000
