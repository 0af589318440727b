"""Idempotency keys: what makes two requests the same, and which results are still remembered.

Pure bookkeeping, no waiting. docs/exactly-once.md says what is promised.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from runner.wire import ExecuteRequest

#: 1 to 255 visible ASCII characters.
KEY = re.compile(r"[\x21-\x7e]{1,255}")
#: What an entry costs beside its body, roughly: many small results are bounded too.
ENTRY_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Key:
    """A client's name for one execution. The same word means another in another session."""

    session_id: str | None
    word: str


def digest(request: ExecuteRequest) -> bytes:
    """Of the request as it was understood: spaces and the order of names do not matter.

    A grant is what lets a request fetch, not what it asks for: a retry may bring a fresh one.
    """
    asked = msgspec.structs.replace(request, egress_grant=None)
    return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).digest()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    value: T
    size: int


class Remembered(Generic[T]):
    """Values by key, within a budget of bytes: what was not asked for longest is forgotten first.

    The newest is always kept, so that the retry that is most likely to come finds it.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._entries: OrderedDict[Key, _Entry[T]] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> T | None:
        """The value, which is thereby the most recently asked for."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: Key, value: T, size: int) -> list[T]:
        """Remembers it; returns what had to be forgotten for it."""
        forgotten = [self.drop(key)] if key in self._entries else []
        self._entries[key] = _Entry(value, size + ENTRY_BYTES)
        self.size += size + ENTRY_BYTES
        while self.size > self._budget_bytes and len(self._entries) > 1:
            forgotten.append(self.drop(next(iter(self._entries))))
        return forgotten

    def clear(self) -> None:
        """Forgets all of them."""
        self._entries.clear()
        self.size = 0

    def drop(self, key: Key) -> T:
        """Forgets one; KeyError if it is not there."""
        entry = self._entries.pop(key)
        self.size -= entry.size
        return entry.value
