"""A delta's first member: the state it builds on, and the names that are gone. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from runner.checkpoint.limits import LEAF_BYTES_MAX, Limits
from runner.checkpoint.treeindex import order_key
from runner.errors import CheckpointTooLarge, CheckpointUnsafe

MEMBER_NAME = b"runner-delta"
_STATE_LINE = re.compile(rb"([0-9a-f]{64})\n")
_NOT_PLAIN = frozenset((b"", b".", b".."))


@dataclass(frozen=True, slots=True)
class DeltaHead:
    """`base` is the `state` of the archive before; `gone` are paths below the root."""

    base: str
    gone: tuple[tuple[bytes, ...], ...]


def encode(base: str, gone: list[bytes]) -> bytes:
    """The member's body. `gone` are names below the root, in order."""
    return b"%b\n%b" % (base.encode("ascii"), b"".join(name + b"\0" for name in gone))


def parse(body: bytes, limits: Limits) -> DeltaHead:
    """The same again, strictly: names in order, canonical, none below another."""
    state = _STATE_LINE.match(body)
    *names, rest = body[65:].split(b"\0")
    if state is None or rest:
        raise CheckpointUnsafe("the head of a delta is not in its form", reason="delta")
    if len(names) > limits.entries:
        raise CheckpointTooLarge("it has too many entries", reason="entries")
    gone = []
    last = b""
    for name in names:
        key = order_key(name)
        parts = tuple(name.split(b"/"))
        if len(name) > limits.name_bytes:
            raise CheckpointTooLarge("a name that is gone is too long", reason="name")
        if not _NOT_PLAIN.isdisjoint(parts) or max(map(len, parts)) > LEAF_BYTES_MAX:
            raise CheckpointUnsafe("a name that is gone is not canonical", reason="delta")
        if last and (key <= last or key.startswith(last + b"\0")):
            raise CheckpointUnsafe("names that are gone are out of order", reason="delta")
        last = key
        gone.append(parts)
    return DeltaHead(state[1].decode("ascii"), tuple(gone))
