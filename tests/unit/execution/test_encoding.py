"""A result's JSON is the same in pieces as at once, and no piece keeps the loop waiting long."""

from __future__ import annotations

import asyncio
import threading
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import wire
from runner.execution import encoding
from runner.execution.encoding import PIECE, encode, is_small

OUTCOME = wire.Outcome(kind="exited", fault="none", retryable=False, evidence={"oom_kills": None})
LIMITS = wire.StageLimits(
    timeout=1, cpu_time=1, memory_limit=1, pids=1, output=1, open_files=1, file_size=1
)
STREAM = wire.StreamInfo(bytes_total=0, bytes_kept=0, sha256="")


def result(stdout: str, content: str | None = None) -> wire.ExecuteResult:
    run = wire.Stage(
        stdout=stdout,
        stderr="",
        output=stdout,
        code=0,
        signal=None,
        status=None,
        message=None,
        memory=1,
        cpu_time=1,
        wall_time=1,
        truncated=False,
        outcome=OUTCOME,
        limits=LIMITS,
        streams=wire.Streams(stdout=STREAM, stderr=STREAM),
    )
    file = msgspec.convert(
        {"id": "i", "name": "n", "storage_session_id": "s", "size": 1, "mode": 1, "sha256": ""}
        | ({} if content is None else {"content": content, "encoding": "utf8"}),
        wire.ResultFile,
    )
    return wire.ExecuteResult(
        language="python",
        version="3",
        session_id="s",
        run=run,
        files=[file],
        skipped=[],
        skipped_total=0,
    )


@pytest.mark.parametrize("length", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7])
def test_it_is_what_one_call_makes(length: int) -> None:
    for text in ("x", "\0", "ä", "🙂", '"', "\\"):
        whole = result(text * length, content=text * length)
        assert encode(whole) == msgspec.json.encode(whole)


@settings(max_examples=50)
@given(st.text(max_size=50), st.text(max_size=50))
def test_any_text_is_what_one_call_makes(stdout: str, content: str) -> None:
    whole = result(stdout, content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "PIECE", 3)
        assert encode(whole) == msgspec.json.encode(whole)


def test_what_is_long_anywhere_is_not_small() -> None:
    assert is_small(result("x" * 100, "y" * 100))
    assert not is_small(result("x" * PIECE)) and not is_small(result("", "x" * (PIECE + 1)))


async def test_the_loop_goes_on_meanwhile() -> None:
    whole = result("\0" * (4 << 20))
    begun = threading.Event()

    def work() -> float:
        begun.set()
        started = time.perf_counter()
        encode(whole)
        return time.perf_counter() - started

    working = asyncio.create_task(asyncio.to_thread(work))
    await asyncio.to_thread(begun.wait)
    turns = 0
    while not working.done():
        await asyncio.sleep(0.001)
        turns += 1
    # One call would let it have one turn, at the end.
    assert turns > 10, (turns, working.result())
