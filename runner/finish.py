"""Waiting for what must be finished, whoever stops waiting for us."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from runner.errors import RunnerError

log = logging.getLogger(__name__)

T = TypeVar("T")


async def finish(
    coroutine: Coroutine[Any, Any, T], *, dispose: Callable[[T], object] | None = None
) -> T:
    """Runs `coroutine` to its end even when the caller is cancelled, and then is cancelled.

    For what holds a resource: opening a file, ending a jail, removing a directory. The coroutine
    bounds its own waits.

    A caller that is cancelled never gets the result. One that owns something (a descriptor, a
    directory) needs `dispose`, which is then called with it, in a thread, before this returns.
    """
    task = asyncio.ensure_future(coroutine)
    if not await _outlast(task):
        return task.result()
    failure = None if task.cancelled() else task.exception()
    if failure is None and dispose is not None and not task.cancelled():
        disposing = asyncio.ensure_future(asyncio.to_thread(dispose, task.result()))
        await _outlast(disposing)
        failure = None if disposing.cancelled() else disposing.exception()
    if failure is not None and not isinstance(failure, RunnerError):
        # Nobody is told of it any more.
        log.warning("what a cancelled caller waited for failed", exc_info=failure)
    raise asyncio.CancelledError from failure


async def _outlast(task: asyncio.Future[Any]) -> bool:
    """Waits until the task has ended; whether the waiter was cancelled meanwhile."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            # Also when the task has ended since: who is cancelled gets nothing.
            cancelled = True
    return cancelled


async def finish_in_thread(function: Any, *args: Any) -> Any:
    """`asyncio.to_thread`, finished even when the caller is cancelled: a thread cannot be."""
    return await finish(asyncio.to_thread(function, *args))
