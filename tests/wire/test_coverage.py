"""No pair is forgotten, and none is counted twice."""

from __future__ import annotations

from tests.wire.replay import BY_ID, PAIRS
from tests.wire.scenarios import ALL, LATER


def test_every_pair_is_in_exactly_one_scenario() -> None:
    listed = [pair for scenario in ALL for pair in scenario]
    assert sorted(listed) == sorted(BY_ID) and len(PAIRS) == len(BY_ID)


def test_what_is_not_wanted_yet_is_what_the_contract_says() -> None:
    assert {pair["id"] for pair in PAIRS if pair.get("later")} == set(LATER)
