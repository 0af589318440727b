"""The failure tree: what is drawn is what is there, and each class says all that a caller needs."""

from __future__ import annotations

import re

import pytest

from runner import errors
from runner.errors import BadRequest, RunnerError, SessionBusy, WorkspaceDirty

#: A line of the drawing: indentation, name, and for a leaf its status, code and marks.
_LINE = re.compile(r"^ {4}((?:[│├└─ ]{4})*)(\w+)(?: +(\d{3}) (\w+)(.*))?$", re.MULTILINE)


def subclasses(of: type[RunnerError]) -> list[type[RunnerError]]:
    return [each for direct in of.__subclasses__() for each in (direct, *subclasses(direct))]


CLASSES = [each for each in subclasses(RunnerError) if each.__module__ == errors.__name__]
ANSWERED = [each for each in CLASSES if hasattr(each, "code")]
named = pytest.mark.parametrize("each", ANSWERED, ids=lambda each: each.__name__)


def test_a_code_means_one_thing() -> None:
    own = [each.__dict__["code"] for each in ANSWERED if "code" in each.__dict__]
    assert len(own) > 20 and len(set(own)) == len(own)


@named
def test_a_class_has_a_code_a_status_and_a_sentence(each: type[RunnerError]) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", each.code)
    assert 400 <= each.status <= 599
    sentence = (each.__doc__ or "").strip()
    assert sentence.endswith(".") and "\n" not in sentence
    assert each().message == sentence.rstrip(".")


def test_a_class_without_a_code_is_only_a_branch() -> None:
    for each in set(CLASSES) - set(ANSWERED):
        assert each.__subclasses__(), each


def test_the_drawing_is_the_tree() -> None:
    drawn: dict[str, tuple[str, str | None, str | None, str]] = {}
    above = ["RunnerError"]
    for indent, name, status, code, marks in _LINE.findall(errors.__doc__ or ""):
        depth = len(indent) // 4
        if depth == 0:
            continue
        del above[depth:]
        drawn[name] = (above[-1], status or None, code or None, marks)
        above.append(name)
    assert set(drawn) == {each.__name__ for each in CLASSES}
    for each in CLASSES:
        parent, status, code, marks = drawn[each.__name__]
        assert parent == each.__mro__[1].__name__, each
        if code is not None:
            assert (int(status or 0), code) == (each.status, each.code), each
            assert ("recycle" in marks) == each.recycle, each
            assert "retryable" not in marks or each.retryable, each


def test_only_what_a_fresh_vm_cures_has_a_status_that_recycles_one() -> None:
    gateways = {each.code for each in ANSWERED if each.status in (502, 503, 504)}
    assert gateways <= {"not_ready"}


def test_the_body_is_the_one_shape() -> None:
    assert SessionBusy().body() == {
        "error": "session_busy",
        "message": "Another operation holds the session",
        "retryable": True,
        "recycle": False,
    }
    error = BadRequest("the detail", field="files[0]", reason="why", seen=3)
    assert error.body() == {
        "error": "invalid_request",
        "message": "The request is not valid: the detail",
        "retryable": False,
        "recycle": False,
        "field": "files[0]",
        "reason": "why",
        "seen": 3,
    }
    assert WorkspaceDirty().body()["recycle"] is True
