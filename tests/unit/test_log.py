"""Log lines: one JSON object each, whatever is in them."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from runner.log import JsonFormatter, TextFormatter


def record(message: str, exc_info: Any = None, **extra: Any) -> logging.LogRecord:
    made = logging.getLogger("runner.test").makeRecord(
        "runner.test", logging.WARNING, "f.py", 1, message, (), exc_info, extra=extra
    )
    made.created, made.msecs = 1_700_000_000.25, 250.0
    return made


def test_an_event_is_one_line_of_json_with_its_own_fields() -> None:
    line = JsonFormatter().format(record("serving", status=200, nested={"a": [1]}, none=None))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "runner.test",
        "event": "serving",
        "status": 200,
        "nested": {"a": [1]},
        "none": None,
    }


def test_what_json_does_not_know_is_text_and_breaks_no_line() -> None:
    line = JsonFormatter().format(record("two\nlines", raw=b"\xff", lone="\udcff", path=object))
    event = json.loads(line)
    assert "\n" not in line and line.isascii()
    assert event["event"] == "two\nlines" and event["raw"] == "b'\\xff'"


def test_an_exception_is_in_the_event() -> None:
    try:
        raise ValueError("inside")
    except ValueError:
        line = JsonFormatter().format(record("failed", exc_info=sys.exc_info()))
    assert "ValueError: inside" in json.loads(line)["exception"] and "\n" not in line


def test_text_is_for_people() -> None:
    assert (
        TextFormatter().format(record("serving", port=8080)).endswith("warning serving port=8080")
    )
