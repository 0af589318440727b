"""A save that may start: what would be sent, known before a byte is, and then the bytes.

A workspace that changes under the walk (a terminal that could not be frozen, or that the watchdog
let go) is walked again while nothing has been sent yet. After that the stream can only be cut: what
it has said it cannot take back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass

from runner.checkpoint import inventory
from runner.checkpoint.bases import Bases
from runner.checkpoint.handover import Block
from runner.checkpoint.inventory import UNSTABLE, Plan
from runner.checkpoint.limits import Limits
from runner.checkpoint.save import stream_save
from runner.checkpoint.sidecar import SidecarFacts
from runner.errors import Internal
from runner.finish import finish
from runner.workspace.tree import Tree

log = logging.getLogger(__name__)

#: Walks of a workspace that does not hold still, before the checkpoint fails.
TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What is saved, and how. `bases` is None where the state can be no base and have none."""

    tree: Tree
    facts: SidecarFacts
    key: bytes
    limits: Limits
    bases: Bases | None
    base_tags: Collection[str]


class Checkpoint:
    """One save. What it says of itself is final when the first of `stream` has come."""

    def __init__(self, saved: Saved, planned: Plan) -> None:
        self._saved = saved
        self._planned = planned

    @classmethod
    async def planned(cls, saved: Saved) -> Checkpoint:
        """Walks the tree without reading a file body."""
        return cls(saved, await _plan(saved))

    @property
    def etag(self) -> str:
        """The state's name."""
        return self._planned.etag(self._saved.facts)

    @property
    def base(self) -> str | None:
        """The entity tag that a delta builds on, None for a full archive."""
        return self._planned.delta.base.etag if self._planned.delta else None

    @property
    def entries(self) -> int:
        """Members of the archive, but for its sidecar."""
        return self._planned.entries

    @property
    def omitted(self) -> int:
        """Sockets, fifos and devices that are left out."""
        return self._planned.omitted

    @property
    def expanded(self) -> int:
        """Bytes of the whole state's tar, also where only a delta is sent."""
        return self._planned.expanded

    async def stream(self) -> AsyncGenerator[Block, None]:
        """The archive. Use with `contextlib.aclosing`: nothing reads the tree after that.

        Raises `CheckpointTooLarge`, and `Internal` when the workspace does not hold still.
        """
        for tries_left in reversed(range(TRIES)):
            async with contextlib.aclosing(self._chunks()) as chunks:
                try:
                    first = await anext(chunks)
                except Internal as error:
                    if error.reason != UNSTABLE or not tries_left:
                        raise
                else:
                    yield first
                    async for chunk in chunks:
                        yield chunk
                    return
            log.warning("the workspace changed while it was saved: once more")
            self._planned = await _plan(self._saved)

    def _chunks(self) -> AsyncGenerator[Block, None]:
        saved, planned = self._saved, self._planned
        keeping = saved.bases.keep(self.etag, planned.state) if saved.bases else None
        return stream_save(
            saved.tree, saved.facts, planned, key=saved.key, limits=saved.limits, keeping=keeping
        )


async def _plan(saved: Saved) -> Plan:
    return await finish(asyncio.to_thread(_plan_in_thread, saved))


def _plan_in_thread(saved: Saved) -> Plan:
    base = saved.bases.find(saved.base_tags) if saved.bases is not None else None
    return inventory.plan(saved.tree, saved.limits, base)
