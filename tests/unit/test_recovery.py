"""A caller is told what to do by typed fields, and by nothing that a user could have chosen."""

from __future__ import annotations

import pytest

from runner.errors import RunnerError
from runner.recovery import ADVICE, Advice, Course, by_flags, course

#: A repository may be called that, and a lost workspace of it is no time-out.
MISLEADING = "request-timeout"


def failures(top: type[RunnerError] = RunnerError) -> list[type[RunnerError]]:
    """Every class of the tree that has a code of its own."""
    found = [top] if hasattr(top, "code") else []
    return found + [each for below in top.__subclasses__() for each in failures(below)]


def test_every_failure_has_its_advice_once() -> None:
    advised = [each.failure.code for each in ADVICE if each.reason is None]
    assert sorted(advised) == sorted(each.code for each in failures())


@pytest.mark.parametrize("failure", failures(), ids=lambda each: each.code)
def test_no_text_changes_what_is_to_be_done(failure: type[RunnerError]) -> None:
    plain = failure().body()
    named = failure(MISLEADING, field=MISLEADING, reason=MISLEADING, timeout=MISLEADING).body()
    assert MISLEADING in named["message"]
    assert course(plain) == course(named)


def test_who_must_recycle_restores_and_who_may_repeat_repeats() -> None:
    for each in ADVICE:
        if each.failure.recycle:
            assert each.course is Course.RESTORE
        elif each.failure.retryable and each.failure.status != 503:
            assert each.course is Course.REPEAT


def test_what_has_left_a_dirty_session_is_to_be_restored_whatever_its_code() -> None:
    for each in ADVICE:
        assert course(each.failure().body() | {"recycle": True}) is Course.RESTORE


@pytest.mark.parametrize("advice", [each for each in ADVICE if each.reason])
def test_a_reason_with_advice_of_its_own_is_gone_by(advice: Advice) -> None:
    plain, named = advice.failure().body(), advice.failure(reason=advice.reason).body()
    assert course(named) is advice.course is not course(plain)
    assert course(named | {"recycle": True}) is Course.RESTORE


@pytest.mark.parametrize(
    ("retryable", "recycle", "wanted"),
    [
        (False, False, Course.GIVE_UP),
        (True, False, Course.REPEAT),
        (False, True, Course.RESTORE),
        (True, True, Course.RESTORE),
    ],
)
def test_a_code_of_tomorrow_is_taken_by_its_flags(
    *, retryable: bool, recycle: bool, wanted: Course
) -> None:
    body = {"error": "new", "message": MISLEADING, "retryable": retryable, "recycle": recycle}
    assert course(body) == by_flags(retryable=retryable, recycle=recycle) == wanted
