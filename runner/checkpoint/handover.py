"""Bounded hand-overs of byte blocks: thread to thread, thread to event loop, event loop to thread.

The bound is the backpressure: a writer spends a credit for each block and the reader gives it
back, so whoever is ahead waits. Either end can leave, and the other learns it at its next call: a
reader that left makes writing raise `AbandonedError`, a writer that failed makes reading raise its
exception. Queues of C are used because a Python condition costs more than the work on a block.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator, Iterator
from queue import Empty, SimpleQueue
from typing import TypeAlias

#: A block changes hands: who gave it away does not touch it again.
Block: TypeAlias = bytes | bytearray


class AbandonedError(Exception):
    """The reading end has left; what is written goes nowhere."""


class _End:
    """Nothing more comes; with a failure, because of it."""

    def __init__(self, failure: BaseException | None) -> None:
        self.failure = failure

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure


class Handover:
    """From one thread to another."""

    def __init__(self, blocks_ahead: int) -> None:
        """At most `blocks_ahead` blocks wait in between."""
        self._abandoned = False
        self._blocks: SimpleQueue[Block | _End] = SimpleQueue()
        self._credits: SimpleQueue[None] = SimpleQueue()
        for _ in range(blocks_ahead):
            self._credits.put(None)

    def put(self, block: Block) -> None:
        """Waits until there is room. Raises `AbandonedError`."""
        self._credits.get()
        if self._abandoned:
            self._credits.put(None)  # So that the next call does not wait either.
            raise AbandonedError
        self._deliver(block)

    def end(self, failure: BaseException | None = None) -> None:
        """Nothing more comes. Never waits."""
        self._deliver(_End(failure))

    def abandon(self) -> None:
        """The reader leaves: a writer that waits is let go, and a reading that waits ends."""
        self._abandoned = True
        self._credits.put(None)
        self._deliver(_End(None))

    def __iter__(self) -> Iterator[Block]:
        """Reads to the end, waiting for each. Raises the writer's failure."""
        while True:
            block = self._blocks.get()
            if isinstance(block, _End):
                block.check()
                return
            self._give_back()
            yield block

    def _deliver(self, block: Block | _End) -> None:
        self._blocks.put(block)

    def _give_back(self) -> None:
        self._credits.put(None)


class HandoverToLoop(Handover):
    """From a thread to a coroutine of the loop that it is made in."""

    def __init__(self, blocks_ahead: int) -> None:
        super().__init__(blocks_ahead)
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Block | _End] = asyncio.Queue()

    async def get(self) -> Block | None:
        """The next block, None at the end. Raises the writer's failure."""
        block = await self._arrived.get()
        if isinstance(block, _End):
            block.check()
            return None
        self._give_back()
        return block

    def _deliver(self, block: Block | _End) -> None:
        # A loop that was closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, block)


class HandoverFromLoop(Handover):
    """From a coroutine of the loop that it is made in to a thread."""

    def __init__(self, blocks_ahead: int) -> None:
        super().__init__(blocks_ahead)
        # To wake the loop costs more than a block does: it is woken for several at a time.
        self._wake_at = (blocks_ahead + 1) // 2
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()

    async def put_async(self, block: Block) -> None:
        """Waits until there is room. Raises `AbandonedError`."""
        while not self._abandoned:
            self._room.clear()
            try:
                self._credits.get_nowait()
            except Empty:
                await self._room.wait()
            else:
                self._deliver(block)
                return
        raise AbandonedError

    def abandon(self) -> None:
        super().abandon()
        self._wake()

    def _give_back(self) -> None:
        super()._give_back()
        # Who waits saw no credit at all: on the way up this number is passed.
        if self._credits.qsize() == self._wake_at:
            self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._room.set)


class Stage:
    """A thread that runs a generator of blocks ahead of whoever reads `out`.

    As a context manager it leaves no thread behind: leaving abandons the hand-over and joins. The
    generator is closed on its own thread.
    """

    def __init__(
        self,
        blocks: Generator[Block, None, None],
        out: Handover,
        *,
        name: str,
        upstream: Handover | None = None,
    ) -> None:
        """`upstream` is what the generator itself may wait for: stopping abandons it as well."""
        self.out = out
        self._upstream = upstream
        self._blocks = blocks
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread. Whoever starts it has to `stop` it."""
        self._thread.start()

    def stop(self) -> None:
        """Lets the thread go and waits for it: at most for the block that it is making."""
        self.out.abandon()
        if self._upstream is not None:
            self._upstream.abandon()
        self._thread.join()

    def __enter__(self) -> Iterator[Block]:
        self.start()
        return iter(self.out)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            with contextlib.closing(self._blocks) as blocks:
                for block in blocks:
                    self.out.put(block)
        except AbandonedError:
            return  # Nobody reads any more.
        except BaseException as error:
            self.out.end(error)  # It is raised again where the blocks are read.
        else:
            self.out.end()
