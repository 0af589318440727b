"""The short form of `make fuzz`: the same archives for the same seed, in a few seconds."""

from __future__ import annotations

import random
import time

import pytest

from tests.fuzz.mutate import mutated, seeds
from tests.fuzz.targets import TARGETS, Room

SECONDS = 2.0


@pytest.mark.parametrize("target", range(len(TARGETS)), ids=[each.__name__ for each in TARGETS])
def test_an_archive_is_refused_or_gives_what_it_says(target: int) -> None:
    chance, room, pool = random.Random(target), Room(), seeds()
    mine = [each for each in pool if each[0] == target]
    try:
        for each in mine:
            room.run(each)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            each = mutated(chance.choice(mine), chance, pool)
            room.run(bytes([target]) + each[1:])
        assert room.runs > 100
        assert room.taken
    finally:
        room.close()
