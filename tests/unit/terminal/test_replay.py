"""What is kept of a terminal's output."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.terminal.replay import Replay


@given(st.integers(1, 50), st.lists(st.binary(max_size=30), max_size=20), st.data())
def test_what_is_kept_is_the_end_of_all_that_came(
    capacity: int, pieces: list[bytes], data: st.DataObject
) -> None:
    replay = Replay(capacity)
    for piece in pieces:
        replay.append(piece)
    everything = b"".join(pieces)
    assert replay.end == len(everything)
    assert replay.start == max(0, len(everything) - capacity)
    offset = data.draw(st.integers(replay.start, replay.end))
    limit = data.draw(st.integers(0, 60))
    assert replay.read(offset, limit) == everything[offset : offset + limit]
