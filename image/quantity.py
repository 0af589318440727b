"""How sizes and times are written: in settings and in runtimes.toml alike. Pure."""

from __future__ import annotations

import re

from jail.profile import MEMORY_MIN

_SIZE_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_TIME_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def size(text: str) -> int:
    """Bytes: `64MiB`, `1GiB`, `4096`. Raises ValueError with what it takes."""
    match = re.fullmatch(r"(\d+)\s*([KMGT]iB|B)?", text.strip(), re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise ValueError("a size above 0 such as 64MiB, 1GiB or 4096")
    return int(match[1]) * _SIZE_UNITS[(match[2] or "").upper()]


def memory(text: str) -> int:
    """Bytes for a jail. Raises ValueError with what it takes."""
    if (wanted := size(text)) < MEMORY_MIN:
        raise ValueError(f"a size of {MEMORY_MIN >> 20}MiB or more: a jail takes that to start")
    return wanted


def seconds(text: str) -> float:
    """Seconds: `30s`, `250ms`, `2m`. Raises ValueError with what it takes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise ValueError("a time above 0 with its unit, such as 30s, 250ms or 2m")
    return float(match[1]) * _TIME_UNITS[match[2]]
