"""The plan: what is done with each input, as a pure function and as a property."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.workspace.paths import SafePath
from runner.workspace.priming import (
    Action,
    Inline,
    Input,
    Present,
    Primed,
    Staged,
    plan,
    supersede,
)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


ORIGINAL, OTHER, EDITED = sha(b"original"), sha(b"other"), sha(b"edited")
PATH = SafePath.parse("data/in.csv")


def an_input(*, read_only: bool = False, sha256: str = ORIGINAL, id: str = "h1") -> Input:  # noqa: A002
    return Input(PATH, Staged((b"s",), sha256, 8), read_only, id)


def decided(wanted: Input, primed: Primed | None, there: Present | None, **more) -> Action:
    step = plan(
        [wanted],
        {} if primed is None else {str(PATH): primed},
        {} if there is None else {PATH: there},
        **more,
    )
    return step[0].action


WRITABLE = [
    ("nothing there, never primed", None, None, Action.WRITE),
    ("primed and deleted since", Primed(ORIGINAL), None, Action.WRITE),
    ("primed and unchanged", Primed(ORIGINAL), Present(ORIGINAL, False), Action.KEEP),
    ("primed and edited", Primed(ORIGINAL), Present(EDITED, False), Action.KEEP),
    ("primed, not even read", Primed(ORIGINAL), Present(None, False), Action.KEEP),
    ("another original", Primed(OTHER), Present(EDITED, False), Action.WRITE),
    ("another original, unread", Primed(OTHER), Present(None, False), Action.WRITE),
    ("another original, same bytes there", Primed(OTHER), Present(ORIGINAL, False), Action.KEEP),
    ("a file of the program's", None, Present(EDITED, False), Action.WRITE),
    ("the very bytes already there", None, Present(ORIGINAL, False), Action.KEEP),
    ("was read-only", Primed(ORIGINAL, True), Present(ORIGINAL, True), Action.WRITE),
]
READ_ONLY = [
    ("nothing there", None, None, Action.WRITE),
    ("intact", Primed(ORIGINAL, True), Present(ORIGINAL, True), Action.KEEP),
    ("removed", Primed(ORIGINAL, True), None, Action.RESTORE),
    ("replaced by the program", Primed(ORIGINAL, True), Present(None, False), Action.RESTORE),
    ("owner or mode changed", Primed(ORIGINAL, True), Present(ORIGINAL, False), Action.RESTORE),
    ("swapped", Primed(ORIGINAL, True), Present(OTHER, True), Action.RESTORE),
    ("another original", Primed(OTHER, True), Present(OTHER, True), Action.WRITE),
    ("was writable", Primed(ORIGINAL), Present(ORIGINAL, False), Action.WRITE),
    ("was writable and edited", Primed(ORIGINAL), Present(EDITED, False), Action.WRITE),
]


@pytest.mark.parametrize(("case", "primed", "there", "action"), WRITABLE)
def test_writable_inputs(case: str, primed, there, action: Action) -> None:
    assert decided(an_input(), primed, there) is action


@pytest.mark.parametrize(("case", "primed", "there", "action"), READ_ONLY)
def test_read_only_inputs(case: str, primed, there, action: Action) -> None:
    assert decided(an_input(read_only=True), primed, there) is action


def test_the_same_bytes_under_a_new_id_are_the_same_original() -> None:
    before = Primed(ORIGINAL, input_id="h1")
    assert decided(an_input(id="h1_again"), before, Present(EDITED, False)) is Action.KEEP
    assert decided(an_input(id="h1", sha256=OTHER), before, Present(EDITED, False)) is Action.WRITE


def test_an_output_that_comes_back_as_an_input_does_not_undo_a_later_edit() -> None:
    there = Present(EDITED, False)
    assert decided(an_input(), None, there, surfaced={str(PATH): ORIGINAL}) is Action.KEEP
    assert decided(an_input(), None, there, surfaced={str(PATH): OTHER}) is Action.WRITE


def test_inline_content_is_its_own_identity() -> None:
    def inline(content: bytes) -> Input:
        return Input(PATH, Inline(content))

    before, there = Primed(sha(b"one")), Present(EDITED, False)
    assert decided(inline(b"one"), before, there) is Action.KEEP
    assert decided(inline(b"two"), before, there) is Action.WRITE


def test_the_record_of_a_kept_input_carries_the_new_id() -> None:
    wanted = Input(PATH, Staged((b"s",), ORIGINAL, 8), False, "new", "session")
    steps = plan(
        [wanted], {str(PATH): Primed(ORIGINAL, input_id="old")}, {PATH: Present(None, False)}
    )
    assert supersede({}, steps) == {str(PATH): Primed(ORIGINAL, False, "new", "session")}


@pytest.mark.parametrize(
    ("name", "gone"), [("a", {"a/b", "a/b/c"}), ("a/b/c/d", {"a/b/c", "a/b"}), ("a/bb", set())]
)
def test_an_input_in_the_place_of_others_ends_their_records(name: str, gone: set[str]) -> None:
    records = {path: Primed(OTHER) for path in ("a/b", "a/b/c", "ab", "z")}
    steps = plan([Input(SafePath.parse(name), Inline(b"x"))], {}, {})
    assert supersede(records, steps).keys() == (records.keys() - gone) | {name}


hashes = st.sampled_from([ORIGINAL, OTHER, EDITED])
primeds = st.none() | st.builds(Primed, hashes, st.booleans())
presents = st.none() | st.builds(Present, st.none() | hashes, st.booleans())


@given(primeds, presents, st.booleans(), hashes, st.none() | hashes)
def test_what_holds_for_every_plan(primed, there, read_only, sha256, surfaced) -> None:
    wanted = an_input(read_only=read_only, sha256=sha256)
    action = decided(wanted, primed, there, surfaced={str(PATH): surfaced} if surfaced else {})
    if there is None:
        assert action is not Action.KEEP, "what is not there cannot be kept"
    if there is not None and there.sha256 == sha256 and there.sealed == read_only:
        assert action is Action.KEEP, "an unchanged input is not written again"
    if primed is not None and primed.sha256 == sha256 and there is not None and not read_only:
        assert there.sealed or action is Action.KEEP, "an edit survives the same original"
    if read_only and action is Action.KEEP:
        assert there == Present(sha256, True), "a read-only input is kept only if it is proven"
    if primed is not None and sha256 not in (primed.sha256, surfaced, there and there.sha256):
        assert action is Action.WRITE, "a new original wins"
    assert (action is Action.RESTORE) <= read_only
