"""The archives of a restore's body: one as the body itself, or several as the parts of a multipart.

Chunks as they come; nothing is kept, nothing is decoded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from runner.api.patience import Patience
from runner.errors import CheckpointCorrupt, UnsupportedMediaType

MEDIA_TYPES = (
    "application/x-gtar",
    "application/gzip",
    "application/x-gzip",
    "application/octet-stream",
)
#: RFC 2046 section 5.1.3: the parts' order matters.
MULTIPART = "multipart/mixed"
PARTS_MAX = 256
READ_BYTES = 256 << 10
#: What a part is read in: its reader returns a little more than it is asked for.
_PART_READ_BYTES = READ_BYTES >> 1
#: Headers that would make a part something else than the bytes that came, and what they may say.
_PLAIN = {
    "Content-Encoding": ("identity",),
    "Content-Transfer-Encoding": ("binary", "8bit", "7bit"),
}

T = TypeVar("T")
Archive = AsyncIterator[bytes]


class Archives:
    """Iterate it; take each archive to its end before the next."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._patience = Patience.of(request)

    async def __aiter__(self) -> AsyncIterator[Archive]:
        content = self._request.content
        if self._request.content_type != MULTIPART:
            yield self._chunks(lambda: content.read(READ_BYTES))
            return
        reader = await self._came(self._request.multipart)
        parts = 0
        while (part := await self._came(reader.next)) is not None:
            parts += 1
            if parts > PARTS_MAX:
                raise CheckpointCorrupt("it has too many parts", reason="multipart")
            if not isinstance(part, aiohttp.BodyPartReader):
                raise CheckpointCorrupt("a part has parts itself", reason="multipart")
            _check(part)
            yield self._chunks(lambda part=part: part.read_chunk(_PART_READ_BYTES))  # type: ignore[misc]
        if not parts:
            raise CheckpointCorrupt("it has no part", reason="multipart")

    async def _chunks(self, read: Callable[[], Coroutine[Any, Any, bytes]]) -> Archive:
        while chunk := await self._came(read):
            for start in range(0, len(chunk), READ_BYTES):
                yield chunk[start : start + READ_BYTES] if len(chunk) > READ_BYTES else chunk

    async def _came(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What is read. A body that is cut, stalls or is no multipart: corrupt."""
        try:
            async with self._patience.waiting():
                return await read()
        except TimeoutError:
            raise CheckpointCorrupt("the body stopped coming", reason="stalled") from None
        except web.RequestPayloadError:
            raise CheckpointCorrupt("the body is cut", reason="truncated") from None
        except (ValueError, AssertionError, RuntimeError, HttpProcessingError):
            # What aiohttp's reader says to a body that is no multipart, or ends too soon.
            raise CheckpointCorrupt("the parts are not in their form", reason="multipart") from None


def _check(part: aiohttp.BodyPartReader) -> None:
    said = part.headers.get("Content-Type", MEDIA_TYPES[0]).partition(";")[0].strip().lower()
    if said not in MEDIA_TYPES:
        raise UnsupportedMediaType("a part is no archive", field="Content-Type")
    for name, values in _PLAIN.items():
        if part.headers.get(name, values[0]).strip().lower() not in values:
            raise UnsupportedMediaType("it takes a part as it is", field=name)
