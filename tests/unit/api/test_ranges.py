"""Byte ranges and entity tags, as RFC 9110 has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.api.conditional import matches
from runner.api.ranges import wanted_bytes
from runner.errors import RangeNotSatisfiable

#: header → of ten bytes
PARTS = {
    None: None,
    "": None,
    "bytes=0-0": (0, 1),
    "bytes=0-9": (0, 10),
    "bytes=0-": (0, 10),
    "bytes=3-5": (3, 6),
    "bytes=9-": (9, 10),
    "bytes=5-99999999999": (5, 10),
    "bytes=-1": (9, 10),
    "bytes=-10": (0, 10),
    "bytes=-11": (0, 10),
    "BYTES=1-2": (1, 3),
    "bytes= 1-2 ": (1, 3),
    "bytes=5-4": None,
    "bytes=-": None,
    "bytes=1": None,
    "bytes=a-b": None,
    "bytes=0-1,3-4": None,
    "bytes=--1": None,
    "bytes=+1-2": None,
    "bytes=\u0661-\u0662": None,
    "items=0-1": None,
    "bytes 0-1": None,
}


@pytest.mark.parametrize("header", PARTS)
def test_a_range_is_a_part_or_is_ignored(header: str | None) -> None:
    assert wanted_bytes(header, 10) == PARTS[header]


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-12", "bytes=-0"])
def test_what_lies_outside_is_refused(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable) as refused:
        wanted_bytes(header, 10)
    assert refused.value.extra == {"size": 10}


def test_an_empty_file_has_no_part() -> None:
    for header in ("bytes=0-", "bytes=0-0", "bytes=-1"):
        with pytest.raises(RangeNotSatisfiable):
            wanted_bytes(header, 0)


@given(st.text(max_size=20) | st.from_regex(r"bytes=\d{0,20}-\d{0,20}"), st.integers(0, 100))
def test_any_header_is_a_part_that_is_there_or_none(header: str, size: int) -> None:
    try:
        part = wanted_bytes(header, size)
    except RangeNotSatisfiable:
        return
    assert part is None or 0 <= part[0] < part[1] <= size


@pytest.mark.parametrize(
    ("values", "does"),
    [
        ([], False),
        (['"a"'], True),
        (['W/"a"'], True),
        (['"b", "a"'], True),
        (['"b"', '"a"'], True),
        (["*"], True),
        (['"b"'], False),
        (["a"], False),
        (['"A"'], False),
    ],
)
def test_if_none_match_names_it(values: list[str], does: bool) -> None:
    assert matches(values, '"a"') is does
