"""Reports are taken only as init sends them."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from jail.report import MAGIC, SIZE, Kind, parse

LAYOUT = struct.Struct("=4sIqQQQQ")
NUMBERS = st.integers(0, 2**64 - 1)


@given(st.binary(max_size=2 * SIZE))
def test_junk_is_never_a_report(junk: bytes) -> None:
    report = parse(junk)
    assert report is None or (len(junk) == SIZE and junk.startswith(MAGIC))


@given(st.sampled_from(Kind), st.integers(-(2**63), 2**63 - 1), NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_a_report_comes_out_as_it_went_in(
    kind: Kind, value: int, at: int, user: int, system: int, rss: int
) -> None:
    report = parse(LAYOUT.pack(MAGIC, kind, value, at, user, system, rss))
    assert report is not None
    assert (report.kind, report.value, report.at_ns) == (kind, value, at)
    assert (report.cpu_ns, report.max_rss_bytes) == (user + system, rss)


@given(st.integers(0, 2**32 - 1).filter(lambda kind: kind not in set(Kind)), NUMBERS)
def test_an_unknown_kind_is_no_report(kind: int, number: int) -> None:
    assert parse(LAYOUT.pack(MAGIC, kind, 0, number, 0, 0, 0)) is None


@given(st.binary(min_size=4, max_size=4).filter(lambda magic: magic != MAGIC))
def test_another_version_is_no_report(magic: bytes) -> None:
    assert parse(LAYOUT.pack(magic, 1, 0, 0, 0, 0, 0)) is None
