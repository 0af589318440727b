"""What makes two requests the same, and how long a result is remembered."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.execution.idempotency import ENTRY_BYTES, KEY, Key, Remembered, digest
from runner.wire import ExecuteRequest


def digest_of(body: str) -> bytes:
    return digest(msgspec.json.decode(body, type=ExecuteRequest))


def test_spaces_order_and_unknown_fields_make_no_other_request() -> None:
    one = '{"language":"c","files":[{"content":"x"}],"env_vars":{"A":"1","B":"2"}}'
    two = """{ "env_vars": {"B": "2", "A": "1"}, "files": [ {"content": "x"} ],
               "language": "c", "unknown": 1, "egress_grant": "fresh" }"""
    assert digest_of(one) == digest_of(two)


@pytest.mark.parametrize(
    "other",
    [
        '{"language":"c","files":[{"content":"y"}]}',
        '{"language":"d","files":[{"content":"x"}]}',
        '{"language":"c","files":[{"content":"x"},{"content":"x"}]}',
        '{"language":"c","files":[{"content":"x"}],"args":["x"]}',
        '{"language":"c","files":[{"content":"x"}],"run_timeout":1}',
    ],
)
def test_whatever_can_change_the_run_makes_another_request(other: str) -> None:
    assert digest_of(other) != digest_of('{"language":"c","files":[{"content":"x"}]}')


@pytest.mark.parametrize(
    ("word", "valid"),
    [
        *(("a", True), ("!~" * 127, True), ("x" * 255, True), ("x" * 256, False)),
        *(("", False), ("a b", False), ("ä", False), ("a\n", False), ("\x7f", False)),
    ],
)
def test_a_key_is_visible_ascii(word: str, valid: bool) -> None:
    assert bool(KEY.fullmatch(word)) is valid


def test_the_same_word_in_another_session_is_another_key() -> None:
    remembered: Remembered[int] = Remembered(1 << 20)
    remembered.put(Key("a", "word"), 1, 1)
    assert remembered.get(Key("b", "word")) is None
    assert remembered.get(Key(None, "word")) is None


def test_what_was_not_asked_for_longest_is_forgotten_first() -> None:
    remembered: Remembered[str] = Remembered(3 * (100 + ENTRY_BYTES))
    for word in "abc":
        remembered.put(Key(None, word), word, 100)
    assert remembered.get(Key(None, "a")) == "a"
    remembered.put(Key(None, "d"), "d", 100)
    assert [word for word in "abcd" if remembered.get(Key(None, word))] == ["a", "c", "d"]


def test_the_newest_is_kept_however_large_it_is() -> None:
    remembered: Remembered[str] = Remembered(1)
    remembered.put(Key(None, "a"), "a", 1_000)
    remembered.put(Key(None, "b"), "b", 1_000)
    assert remembered.get(Key(None, "b")) == "b" and len(remembered) == 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50_000))))
def test_the_budget_holds_whatever_comes(puts: list[tuple[int, int]]) -> None:
    budget = 100_000
    remembered: Remembered[int] = Remembered(budget)
    for word, size in puts:
        remembered.put(Key(None, str(word)), word, size)
        assert remembered.size <= max(budget, size + ENTRY_BYTES)
    for word in range(10):
        if remembered.get(Key(None, str(word))) is not None:
            remembered.drop(Key(None, str(word)))
    assert remembered.size == 0 == len(remembered)
