"""Byte ranges (RFC 9110 section 14). Pure."""

from __future__ import annotations

import re

from runner.errors import RangeNotSatisfiable

_ONE_RANGE = re.compile(r"bytes=\s*(\d{0,19})-(\d{0,19})\s*", re.IGNORECASE | re.ASCII)


def wanted_bytes(header_value: str | None, size: int) -> tuple[int, int] | None:
    """The bytes asked for, as a half-open interval; None for all of them.

    Another unit, several ranges and an invalid header are ignored, as section 14.2 allows.
    Raises `RangeNotSatisfiable`.
    """
    match = _ONE_RANGE.fullmatch(header_value or "")
    if match is None or match.group(0).strip().endswith("=-"):
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= size or start >= stop:
        raise RangeNotSatisfiable(f"the file has {size} bytes", field="Range", size=size)
    return start, stop
