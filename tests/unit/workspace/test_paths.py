"""Names from outside: what becomes a `SafePath` and what conflicts."""

from __future__ import annotations

import itertools
import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import InvalidPath
from runner.workspace.paths import (
    COMPONENT_BYTES_MAX,
    DEPTH_MAX,
    NAME_BYTES_MAX,
    SafePath,
    refuse_conflicts,
)

#: Text that is likely to trip a parser of paths.
names = st.one_of(
    st.text(max_size=300),
    st.lists(
        st.sampled_from(["", ".", "..", "a", "b.c", "...", " ", "é", "\x00"]), max_size=14
    ).map("/".join),
)
plain = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("/", "absolute"),
        ("/etc/passwd", "absolute"),
        ("..", "traversal"),
        ("a/../b", "traversal"),
        ("a/..", "traversal"),
        (".", "not_canonical"),
        ("./a", "not_canonical"),
        ("a//b", "not_canonical"),
        ("a/", "not_canonical"),
        ("a\x00b", "nul"),
        ("a\ud800", "encoding"),
        ("a" * 256, "component_too_long"),
        ("é" * 128, "component_too_long"),
        ("/".join(["a" * 100] * 3), "too_long"),
        ("/".join("a" * 11), "too_deep"),
    ],
)
def test_a_name_that_is_not_canonical_is_refused(name: str, reason: str) -> None:
    with pytest.raises(InvalidPath) as caught:
        SafePath.parse(name, field="files[3].name")
    assert (caught.value.reason, caught.value.field) == (reason, "files[3].name")


@pytest.mark.parametrize(
    "name", ["a", "a/b", "...", "..a", "a..", ".hidden", "a b", "-rf", "a\\b", "é/ü", "a" * 255]
)
def test_a_canonical_name_is_taken_as_it_is(name: str) -> None:
    assert str(SafePath.parse(name)) == name


@given(names)
def test_whatever_is_taken_is_canonical_and_within_the_limits(name: str) -> None:
    try:
        path = SafePath.parse(name)
    except InvalidPath as error:
        assert error.reason and name not in error.message.split(": ")[1:]
        return
    raw = bytes(path)
    assert raw == name.encode() and posixpath.normpath(raw) == raw
    assert not raw.startswith((b"/", b"../")) and b"\x00" not in raw
    assert len(raw) <= NAME_BYTES_MAX and len(path.parts) <= DEPTH_MAX
    assert all(0 < len(part) <= COMPONENT_BYTES_MAX for part in path.parts)
    assert SafePath.parse(str(path)) == path == SafePath.of_parts(path.parts)


@given(st.lists(st.binary(max_size=8), max_size=4))
def test_parts_read_from_a_directory_are_still_checked(parts: list[bytes]) -> None:
    plain_parts = bool(parts) and not any(
        part in (b"", b".", b"..") or b"/" in part or b"\x00" in part for part in parts
    )
    try:
        assert SafePath.of_parts(parts).parts == tuple(parts)
    except InvalidPath:
        assert not plain_parts
    else:
        assert plain_parts


@given(st.lists(plain, max_size=8))
def test_conflicts_are_found_exactly_when_two_claim_the_same_or_nested(claims: list[str]) -> None:
    conflict = any(
        one == other or other.startswith(f"{one}/") or one.startswith(f"{other}/")
        for one, other in itertools.combinations(claims, 2)
    )
    pairs = [(f"files[{number}].name", SafePath.parse(name)) for number, name in enumerate(claims)]
    try:
        refuse_conflicts(pairs)
    except InvalidPath as error:
        assert conflict and error.reason in ("duplicate", "nested")
        assert error.field in [field for field, _ in pairs]
    else:
        assert not conflict
