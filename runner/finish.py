"""Waiting for what must be finished, whoever stops waiting for us."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs `coroutine` to its end even when the caller is cancelled, and then is cancelled.

    For clean-ups that hold a resource: wiping, ending a jail, removing a directory. The coroutine
    bounds its own waits.
    """
    task = asyncio.ensure_future(coroutine)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                break
            cancelled = True
        except BaseException:
            break
    if cancelled:
        if not task.cancelled():
            task.exception()  # Looked at, so that it is not reported as never retrieved.
        raise asyncio.CancelledError
    return task.result()


async def finish_in_thread(function: Any, *args: Any) -> Any:
    """`asyncio.to_thread`, finished even when the caller is cancelled: a thread cannot be."""
    return await finish(asyncio.to_thread(function, *args))
