"""What the live stories and their predictions are told in: answers, files, runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

#: The file to which the boot hook adds a line, and that line.
RAN, RAN_LINE = "ran", b"ran\n"


class Answer(StrEnum):
    """How a request is answered: 200, or the error's code."""

    OK = "ok"
    DIRTY = "session_workspace_dirty"
    UNBOUND = "session_unbound"
    MISMATCH = "incarnation_mismatch"
    NO_INPUT = "input_unavailable"
    CORRUPT = "checkpoint_corrupt"
    MEDIA_TYPE = "unsupported_media_type"
    INTERNAL = "internal"


@dataclass
class Tree:
    """Files and what is known of them: path → bytes, and path → hash."""

    files: dict[str, bytes] = field(default_factory=dict)
    primed: dict[str, str] = field(default_factory=dict)
    surfaced: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One execute: it puts a script, adds to a file, and then takes its time."""

    script: str
    writes: str
    adds: bytes
    then: str = "true"

    @property
    def code(self) -> str:
        return f"printf %s '{self.adds.decode()}' >> {self.writes}; {self.then}"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
