"""Saving: a workspace tree in, the archive's bytes out, over threads with bounded hand-overs.

One thread walks and reads, another compresses; isal and hashlib let go of the GIL. Hashing goes to
whichever has less to do: a thread of its own where bodies are large, the compressing one where they
are small and Python's work on each member is what holds the first one up. What is in flight is at
most `_AHEAD` blocks between two of them, as many before the reader, and those in hand.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Iterable

from runner.checkpoint import gzipframe
from runner.checkpoint.bases import Keeping
from runner.checkpoint.handover import Block, Handover, HandoverToLoop, Stage
from runner.checkpoint.inventory import Plan
from runner.checkpoint.limits import Limits
from runner.checkpoint.sidecar import SidecarFacts
from runner.checkpoint.writer import Reading, Sealing
from runner.finish import finish
from runner.workspace.tree import Tree

_AHEAD = 4
#: Bytes of an average member from which reading it costs less than the Python around it.
_LARGE_MEMBER = 64 << 10


def save(
    tree: Tree,
    facts: SidecarFacts,
    planned: Plan,
    *,
    key: bytes,
    limits: Limits,
    keeping: Keeping | None = None,
) -> Generator[Block, None, None]:
    """The archive in chunks. Blocks. Closing the generator ends its thread.

    `keeping` keeps the state as a base for deltas.

    Raises `CheckpointTooLarge` over a cap and `Internal` when the workspace is not the planned one
    any more: what came out until then is no archive, and has to be cut off, not ended.
    """
    reading = Reading(tree, planned, limits=limits, keeping=keeping)
    sealing = Sealing(facts, planned, reading, key=key, limits=limits)
    with contextlib.ExitStack() as stages:
        read = Stage(reading.blocks(), Handover(_AHEAD), name="checkpoint-read")
        blocks = sealing.through(stages.enter_context(read))
        tar: Iterable[Block] = blocks
        if planned.tar_bytes >= planned.entries * _LARGE_MEMBER:
            hashing = Stage(blocks, Handover(_AHEAD), name="checkpoint-hash", upstream=read.out)
            tar = stages.enter_context(hashing)
        yield from gzipframe.compress(tar, sealing.end, max_bytes=limits.compressed_bytes)


async def stream_save(
    tree: Tree,
    facts: SidecarFacts,
    planned: Plan,
    *,
    key: bytes,
    limits: Limits,
    keeping: Keeping | None = None,
) -> AsyncGenerator[Block, None]:
    """`save` for the event loop. Use with `contextlib.aclosing`.

    Closing it, at any point, ends the threads before it returns: nothing reads the tree after that.
    """
    chunks = save(tree, facts, planned, key=key, limits=limits, keeping=keeping)
    out = HandoverToLoop(_AHEAD)
    stage = Stage(chunks, out, name="checkpoint-compress")
    stage.start()
    try:
        while (chunk := await out.get()) is not None:
            yield chunk
    finally:
        await finish(asyncio.to_thread(stage.stop))
