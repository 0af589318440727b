"""A bounded hand-over of byte blocks between threads, and between a thread and the event loop.

The bound is the backpressure: whoever is ahead waits. Either end can leave, and the other learns
it at its next call: a reader that left makes `put` raise `AbandonedError`, a writer that failed
makes reading raise its exception.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TypeAlias

#: A block changes hands: who gave it away does not touch it again.
Block: TypeAlias = bytes | bytearray


class AbandonedError(Exception):
    """The reading end has left; what is written goes nowhere."""


class Handover:
    """One writer and one reader; each may be a thread or a coroutine, not both at once."""

    def __init__(self, max_bytes: int) -> None:
        """A block goes in while fewer than `max_bytes` wait in between."""
        self._max_bytes = max_bytes
        self._waiting_bytes = 0
        self._blocks: deque[Block] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._failure: BaseException | None = None
        self._abandoned = False
        self._wake: Callable[[], None] | None = None

    def put(self, block: Block) -> None:
        """Blocks until there is room. Raises `AbandonedError`."""
        with self._changed:
            self._changed.wait_for(self._writable)
            self._append(block)

    def end(self, failure: BaseException | None = None) -> None:
        """Nothing more comes; with `failure`, because of it, and it overtakes what waits."""
        with self._changed:
            if not self._ended:
                self._ended, self._failure = True, failure
                self._notify()

    def abandon(self) -> None:
        """The reader leaves. A writer that waits for room is let go."""
        with self._changed:
            self._abandoned = True
            self._blocks.clear()
            self._notify()

    def __iter__(self) -> Iterator[Block]:
        """Reads to the end, blocking. Raises the writer's failure."""
        while True:
            with self._changed:
                self._changed.wait_for(self._readable)
                block = self._take()
            if block is None:
                return
            yield block

    async def put_async(self, block: Block) -> None:
        """`put` for a coroutine."""
        while True:
            with self._changed:
                if self._writable():
                    self._append(block)
                    return
                woken = self._waiter()
            await woken.wait()

    async def get_async(self) -> Block | None:
        """The next block for a coroutine; None at the end. Raises the writer's failure."""
        while True:
            with self._changed:
                if self._readable():
                    return self._take()
                woken = self._waiter()
            await woken.wait()

    def _writable(self) -> bool:
        return self._abandoned or self._waiting_bytes < self._max_bytes

    def _append(self, block: Block) -> None:
        if self._abandoned:
            raise AbandonedError
        self._blocks.append(block)
        self._waiting_bytes += len(block)
        self._notify()

    def _readable(self) -> bool:
        return bool(self._blocks) or self._ended or self._abandoned

    def _take(self) -> Block | None:
        if self._failure is not None:
            raise self._failure
        if not self._blocks:
            return None
        block = self._blocks.popleft()
        self._waiting_bytes -= len(block)
        self._notify()
        return block

    def _notify(self) -> None:
        self._changed.notify_all()
        if self._wake is not None:
            self._wake()
            self._wake = None

    def _waiter(self) -> asyncio.Event:
        """An event of the running loop that the next change sets, whichever thread makes it."""
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        self._wake = lambda: _set_from_thread(loop, event)
        return event


def _set_from_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    # A loop that was closed has nobody left who waits.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)


class Stage:
    """A thread that runs a generator of blocks ahead of whoever reads `out`.

    As a context manager it leaves no thread behind: leaving abandons the hand-over and joins. The
    generator is closed on its own thread.
    """

    def __init__(
        self,
        blocks: Generator[Block, None, None],
        *,
        ahead: int,
        name: str,
        upstream: Handover | None = None,
    ) -> None:
        """`ahead` bytes may wait to be read.

        `upstream` is what the generator itself may be waiting for: it is abandoned as well when
        the stage is stopped.
        """
        self.out = Handover(ahead)
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
            self.out.end()
        except BaseException as error:
            self.out.end(error)  # It is raised again where the blocks are read.
        else:
            self.out.end()
