"""The transcript: nothing lost, nothing torn, in order, bounded, and paced by its readers."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jail.facts import Captured, Ending, Enforcement, Facts
from jail.measure import not_started
from jail.pump import StreamName
from runner.execution.transcript import EVENT_BYTES, WINDOW_BYTES, Event, Transcript

#: Bytes as programs print them: text, text cut anywhere, and no text at all.
pieces = st.lists(
    st.tuples(
        st.sampled_from(["stdout", "stderr"]),
        st.one_of(
            st.binary(max_size=6),
            st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")),
            st.sampled_from([b"\xf0\x9f", b"\x98\x80", b"\xe2", b"\x82\xac", b"\xff", b"\xed\xa0"]),
        ),
    ),
    max_size=30,
)


def facts_of(stdout: bytes, stderr: bytes) -> Facts:
    blank = not_started(Enforcement.ENFORCED, "none", Ending.CANCELLED)

    def captured(data: bytes) -> Captured:
        return Captured(data, len(data), hashlib.sha256(data).hexdigest())

    return replace(blank, stdout=captured(stdout), stderr=captured(stderr))


async def drained(transcript: Transcript) -> list[Event]:
    reader = transcript.reader()
    events: list[Event] = []
    while batch := await reader.next():
        events += batch
    reader.close()
    return events


def text_of(events: list[Event], mark: str) -> str:
    return "".join(event.text for event in events if event.mark == mark)


@settings(deadline=None)
@given(pieces, st.integers(0, 30))
def test_each_stream_is_what_decoding_it_at_once_gives(
    sent: list[tuple[StreamName, bytes]], lost_from: int
) -> None:
    async def story() -> None:
        transcript = Transcript()
        capture = transcript.stage("run")
        whole: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        for number, (stream, data) in enumerate(sent):
            whole[stream] += data
            # What comes later than this a slow reader kept from the sink: it is in the facts only.
            if number < lost_from:
                await capture(stream, data)
        output = capture.complete(facts_of(whole["stdout"], whole["stderr"]))
        transcript.close()
        events = await drained(transcript)
        for stream, data in whole.items():
            assert text_of(events, stream) == data.decode("utf-8", "replace")
        assert "".join(event.text for event in events) == output

    asyncio.run(story())


async def test_a_character_cut_between_two_reads_is_joined() -> None:
    transcript = Transcript()
    capture = transcript.stage("run")
    reader = transcript.reader()
    await capture("stdout", "€".encode()[:2])
    await capture("stderr", b"!")
    assert (await reader.next())[1:] == [Event("stderr", "run", "!")]
    await capture("stdout", "€".encode()[2:])
    assert await reader.next() == [Event("stdout", "run", "€")]
    reader.close()


async def test_what_is_left_of_a_cut_character_is_replaced_at_the_end() -> None:
    transcript = Transcript()
    capture = transcript.stage("run")
    await capture("stdout", b"a\xe2\x82")
    assert capture.complete(facts_of(b"a\xe2\x82", b"")) == "a\N{REPLACEMENT CHARACTER}"


async def test_streams_and_stages_keep_the_order_of_their_arrival() -> None:
    transcript = Transcript()
    for stage in ("compile", "run"):
        capture = transcript.stage(stage)
        capture.started()
        await capture("stdout", b"a")
        await capture("stdout", b"b")
        await capture("stderr", b"c")
        await capture("stdout", b"d")
        assert capture.complete(facts_of(b"abd", b"c")) == "abcd"
    transcript.close()
    assert await drained(transcript) == [
        Event(mark, stage, text)
        for stage in ("compile", "run")
        for mark, text in (("started", ""), ("stdout", "ab"), ("stderr", "c"), ("stdout", "d"))
    ]


async def test_output_never_comes_before_its_start() -> None:
    transcript = Transcript()
    capture = transcript.stage("run")
    await capture("stdout", b"quick")
    capture.started()
    transcript.close()
    assert await drained(transcript) == [
        Event("started", "run", ""),
        Event("stdout", "run", "quick"),
    ]


async def test_a_reader_that_comes_late_gets_all_of_it() -> None:
    transcript = Transcript()
    capture = transcript.stage("run")
    early = transcript.reader()
    await capture("stdout", b"one")
    assert text_of(await early.next(), "stdout") == "one"
    late = transcript.reader()
    await capture("stdout", b"two")
    assert text_of(await early.next(), "stdout") == "two"
    assert text_of(await late.next(), "stdout") == "onetwo"


async def test_a_long_text_comes_in_pieces_between_characters() -> None:
    transcript = Transcript()
    text = "x" + "€" * EVENT_BYTES
    data = text.encode()
    transcript.stage("run").complete(facts_of(data, b""))
    transcript.close()
    events = await drained(transcript)
    assert len(events) > 2
    assert all(len(event.text.encode()) <= EVENT_BYTES for event in events)
    assert text_of(events, "stdout") == text


async def test_the_sink_waits_until_what_was_taken_was_passed_on() -> None:
    transcript = Transcript()
    capture = transcript.stage("run")
    reader = transcript.reader()
    task = asyncio.create_task(capture("stdout", b"x" * (WINDOW_BYTES + 1)))
    await reader.next()
    await asyncio.sleep(0.01)
    assert not task.done()
    # Asking for more says that it was.
    await reader.next()
    await asyncio.wait_for(task, 1)


async def test_a_reader_that_has_stopped_does_not_hold_up_one_that_reads() -> None:
    transcript = Transcript()
    capture = transcript.stage("run")
    stuck, live = transcript.reader(), transcript.reader()
    for _ in range(5):
        task = asyncio.create_task(capture("stdout", b"x" * (WINDOW_BYTES + 1)))
        await asyncio.sleep(0)
        while not task.done():
            await asyncio.wait_for(live.next(), 1)
            await asyncio.sleep(0)
    # And it still gets all of it.
    transcript.close()
    taken = 0
    while events := await stuck.next():
        taken += sum(len(event.text) for event in events)
    assert taken == 5 * (WINDOW_BYTES + 1)


@pytest.mark.parametrize("how", ["the reader leaves", "the command is over"])
async def test_the_sink_goes_on_when(how: str) -> None:
    transcript = Transcript()
    capture = transcript.stage("run")
    reader = transcript.reader()
    task = asyncio.create_task(capture("stdout", b"x" * (WINDOW_BYTES + 1)))
    await asyncio.sleep(0.01)
    assert not task.done()
    if how == "the reader leaves":
        reader.close()
    else:
        capture.release()
    await asyncio.wait_for(task, 1)


async def test_without_a_reader_nothing_waits() -> None:
    transcript = Transcript()
    await asyncio.wait_for(transcript.stage("run")("stdout", b"x" * (10 * WINDOW_BYTES)), 1)


async def test_single_bytes_on_both_streams_in_turn_stay_cheap() -> None:
    transcript = Transcript()
    capture = transcript.stage("run")
    for _ in range(5_000):
        await capture("stdout", b"o")
        await capture("stderr", b"e")
    held = len(transcript._text) + len(transcript._parts) * transcript._parts.itemsize
    # Eight more for the start.
    assert held <= 10_000 * 9 + 8


async def test_a_discarded_text_stays_for_the_readers_it_has() -> None:
    transcript = Transcript()
    reader = transcript.reader()
    capture = transcript.stage("run")
    await capture("stdout", b"kept")
    transcript.close()
    transcript.discard()
    assert text_of(await reader.next(), "stdout") == "kept"
    reader.close()
    assert transcript.size == 0 and await drained(transcript) == []
