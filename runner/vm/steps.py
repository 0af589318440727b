"""What was done, one by one: a step that was only attempted is not done."""

from __future__ import annotations

from msgspec import Struct


class Step(Struct, frozen=True, kw_only=True):
    """One act on the VM. `detail` says what was seen after it, or what kept it from being done."""

    name: str
    done: bool
    detail: str
