"""How long a client is waited for: for its next bytes, and for all of them, in either direction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import web

from runner.context import RUNNER


@dataclass(frozen=True, slots=True)
class Patience:
    """With one transfer of one request. It may hold the session, or a thread, or a file."""

    idle_s: float
    #: By the loop's clock.
    deadline: float

    @classmethod
    def of(cls, request: web.Request) -> Patience:
        """From now on, as the settings have it."""
        settings = request.app[RUNNER].settings
        now = asyncio.get_running_loop().time()
        return cls(settings.idle_timeout, now + settings.transfer_timeout)

    @contextlib.asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Around one wait. Raises TimeoutError when it is over."""
        async with asyncio.timeout_at(self.deadline), asyncio.timeout(self.idle_s):
            yield

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Around one write of a body: who does not make room in time is as good as gone."""
        try:
            async with self.waiting():
                yield
        except TimeoutError:
            raise ConnectionError("the client stopped reading") from None
