"""A result as JSON, made so that the event loop gets its turn. Pure.

One call of msgspec keeps every other thread out (the GIL) for all of it, and a mebibyte of control
characters, six bytes each, takes it 60 ms: a program could print the daemon's health checks late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from runner.wire import ExecuteResult

#: Characters that are encoded without a break: 4 ms at the worst.
PIECE = 64 << 10


def is_small(result: ExecuteResult) -> bool:
    """Whether all of it may be encoded at once, where it is."""
    printed = (
        len(stage.stdout) + len(stage.stderr) + len(stage.output)
        for stage in (result.run, result.compile)
        if isinstance(stage, type(result.run))
    )
    return sum(printed) + sum(len(file.content or "") for file in result.files) <= PIECE


def encode(result: ExecuteResult) -> bytes:
    """The body. For a thread, unless it `is_small`."""
    if is_small(result):
        return msgspec.json.encode(result)
    return msgspec.json.encode(_in_pieces(msgspec.to_builtins(result)))


def _in_pieces(value: Any) -> Any:
    """The same, with every long text as JSON already."""
    if isinstance(value, dict):
        return {name: _in_pieces(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_in_pieces(each) for each in value]
    if isinstance(value, str) and len(value) > PIECE:
        return msgspec.Raw(b'"' + b"".join(_escaped(value)) + b'"')
    return value


def _escaped(text: str) -> Iterator[bytes]:
    for start in range(0, len(text), PIECE):
        yield msgspec.json.encode(text[start : start + PIECE])[1:-1]
