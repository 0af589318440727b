"""`Idempotency-Key`: one run for one key, whatever becomes of the connections."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jail.host import find_nsjail
from tests.conftest import SESSION
from tests.events import streamed
from tests.harness import Daemon, Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPLAYED = "Idempotent-Replayed"


def keyed(daemon: Daemon, key: str, code: str, **more: Any) -> asyncio.Task[Reply]:
    headers = {"Idempotency-Key": key}
    return asyncio.create_task(daemon.execute(code, language="bash", headers=headers, **more))


async def lines_of(daemon: Daemon, name: str) -> int:
    """How often programs of the session wrote a line to `name`."""
    return (await daemon.file(SESSION, name)).body.count(b"\n")


async def until_idle(daemon: Daemon) -> None:
    """Until a run of the session that nobody waits for is over."""
    async with asyncio.timeout(10):
        while (await daemon.get("/health")).json["session"]["state"] != "ready":
            await asyncio.sleep(0.02)


async def test_fifty_retries_while_the_first_runs_are_one_run_and_51_equal_answers(
    runner: Daemon,
) -> None:
    code = "echo run >> fifty; sleep 0.5; echo $RANDOM"
    first = keyed(runner, "fifty", code, session=SESSION)
    await asyncio.sleep(0.1)
    retries = [keyed(runner, "fifty", code, session=SESSION) for _ in range(50)]
    replies = await asyncio.gather(first, *retries)
    assert {reply.status for reply in replies} == {200}
    assert len({reply.body for reply in replies}) == 1
    assert len({reply.headers["X-Execution-Id"] for reply in replies}) == 1
    assert [REPLAYED in reply.headers for reply in replies] == [False] + [True] * 50
    assert await lines_of(runner, "fifty") == 1
    late = await keyed(runner, "fifty", code, session=SESSION)
    assert late.body == replies[0].body and late.headers[REPLAYED] == "true"


async def test_connections_that_drop_change_nothing(runner: Daemon) -> None:
    code = "echo run >> dropped; sleep 0.6; echo $RANDOM"
    randomly = random.Random(7)
    first = keyed(runner, "dropped", code, session=SESSION)
    await asyncio.sleep(0.15)
    first.cancel()
    retries = [keyed(runner, "dropped", code, session=SESSION) for _ in range(20)]
    for task in retries[:10]:
        await asyncio.sleep(randomly.uniform(0, 0.03))
        task.cancel()
    replies = await asyncio.gather(*retries[10:])
    assert len({reply.body for reply in replies}) == 1
    assert {reply.headers[REPLAYED] for reply in replies} == {"true"}
    assert replies[0].json["run"]["outcome"]["kind"] == "exited"
    assert await lines_of(runner, "dropped") == 1


async def test_nobody_has_to_be_there_for_the_run_to_end_well(runner: Daemon) -> None:
    code = "sleep 0.3; echo run >> alone; echo done"
    async with streamed(
        runner, code, session=SESSION, headers={"Idempotency-Key": "alone"}
    ) as stream:
        await stream.until("started")
    await until_idle(runner)
    assert await lines_of(runner, "alone") == 1
    reply = await keyed(runner, "alone", code, session=SESSION)
    assert reply.json["run"]["stdout"] == "done\n" and await lines_of(runner, "alone") == 1


@pytest.mark.parametrize("when", ["while it runs", "when it is over"])
async def test_the_same_key_with_another_body_is_refused(runner: Daemon, when: str) -> None:
    first = keyed(runner, f"mixed {when}".replace(" ", "-"), "sleep 0.2; echo one")
    await asyncio.sleep(0.05)
    if when == "when it is over":
        await first
    other = await keyed(runner, f"mixed {when}".replace(" ", "-"), "sleep 0.2; echo two")
    assert (other.status, other.json["error"]) == (422, "idempotency_mismatch")
    assert other.json["retryable"] is False
    assert (await first).json["run"]["stdout"] == "one\n"


async def test_a_key_means_something_else_in_a_session(runner: Daemon) -> None:
    in_session = await keyed(runner, "scoped", "echo in > scoped; ls scoped", session=SESSION)
    without = await keyed(runner, "scoped", "echo in > scoped; ls scoped")
    assert REPLAYED not in without.headers
    assert without.headers["X-Execution-Id"] != in_session.headers["X-Execution-Id"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "ä"])
async def test_a_key_that_is_none_is_refused(runner: Daemon, key: str) -> None:
    reply = await keyed(runner, key, "echo ran")
    assert (reply.status, reply.json["field"]) == (400, "Idempotency-Key")


async def test_a_stream_that_joins_gets_all_events_and_a_replay_the_result(
    runner: Daemon,
) -> None:
    code = "echo one; sleep 0.3; echo two"
    first = keyed(runner, "joined", code)
    await asyncio.sleep(0.15)
    async with streamed(runner, code, headers={"Idempotency-Key": "joined"}) as stream:
        assert stream.response.headers[REPLAYED] == "true"
        events = await stream.rest()
    assert [event.name for event in events] == ["started", "stdout", "stdout", "result"]
    assert events[-1].data == (await first).json
    async with streamed(runner, code, headers={"Idempotency-Key": "joined"}) as stream:
        events = await stream.rest()
    assert [event.name for event in events] == ["result"]
    assert events[-1].data == (await first).json


async def test_outputs_count_as_received_only_when_somebody_received_them(
    runner: Daemon,
) -> None:
    code = "echo kept > received.txt; sleep 0.3"
    dropped = keyed(runner, "received", code, session=SESSION)
    await asyncio.sleep(0.15)
    dropped.cancel()
    reply = await keyed(runner, "received", code, session=SESSION)
    assert "received.txt" in [file["name"] for file in reply.json["files"]]
    after = await runner.execute("true", language="bash", session=SESSION)
    assert "received.txt" not in [file["name"] for file in after.json["files"]]


async def test_outputs_that_nobody_received_come_with_the_next_turn(runner: Daemon) -> None:
    code = "echo v1 > lost.txt; sleep 0.3"
    dropped = keyed(runner, "lost", code, session=SESSION)
    await asyncio.sleep(0.15)
    dropped.cancel()
    turn = await runner.execute("echo v2 > lost.txt", language="bash", session=SESSION)
    assert {f["name"]: f["content"] for f in turn.json["files"]}["lost.txt"] == "v2\n"
    # The late answer to the retry is of the first turn, and does not undo what the second said.
    late = await keyed(runner, "lost", code, session=SESSION)
    assert {f["name"]: f["content"] for f in late.json["files"]}["lost.txt"] == "v1\n"
    after = await runner.execute("true", language="bash", session=SESSION)
    assert "lost.txt" not in [file["name"] for file in after.json["files"]]


async def test_a_failure_of_ours_frees_the_key(launch: Callable[..., Any], fast_dir: Path) -> None:
    real = find_nsjail()
    assert real is not None
    nsjail = fast_dir / "nsjail"
    nsjail.symlink_to(real)
    daemon: Daemon = await launch(RUNNER_NSJAIL=str(nsjail), RUNNER_SPARE_JAILS="0")
    nsjail.unlink()
    nsjail.symlink_to("/bin/false")
    failed = await keyed(daemon, "failing", "echo ran", session=SESSION)
    assert (failed.status, failed.json["error"]) == (500, "jail_failed")
    nsjail.unlink()
    nsjail.symlink_to(real)
    reply = await keyed(daemon, "failing", "echo ran", session=SESSION)
    assert reply.json["run"]["stdout"] == "ran\n" and REPLAYED not in reply.headers


async def test_after_a_restore_the_same_key_is_a_new_run(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    code = "echo run >> turns; cat turns"
    await daemon.execute("true", language="bash", session=SESSION)
    before = await daemon.checkpoint(SESSION)
    first = await keyed(daemon, "k", code, session=SESSION)
    assert (await keyed(daemon, "k", code, session=SESSION)).body == first.body
    assert (await daemon.restore(SESSION, before.body)).status == 200
    # The workspace in which it had run is no more: a replay would tell of files that are not there.
    again = await keyed(daemon, "k", code, session=SESSION)
    assert REPLAYED not in again.headers and again.json["run"]["stdout"] == "run\n"


async def test_results_are_kept_within_their_budget(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch(RUNNER_RESULTS_MAX_BYTES="16KiB")
    for number in range(8):
        await keyed(daemon, f"k{number}", "echo x")
    replayed = [REPLAYED in (await keyed(daemon, f"k{n}", "echo x")).headers for n in (7, 0)]
    assert replayed == [True, False]


async def test_a_run_that_nobody_waits_for_ends_with_the_daemon(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch()
    task = keyed(daemon, "long", "sleep 63", session=SESSION)
    await asyncio.sleep(0.2)
    task.cancel()
    begun = asyncio.get_running_loop().time()
    await daemon.stop()
    assert asyncio.get_running_loop().time() - begun < 3
    assert os.listdir(daemon.data_root / "jobs") == []
