"""GET and PUT of objects over HTTP.

GET {base}/sessions/<storage session>/objects/<id>     X-Read-Only on the answer
GET {base}/sessions/<storage session>/objects?detail=normalized
PUT {base}/sessions/<storage session>/objects/<id>     X-Original-Filename, Content-Type
X-CodeAPI-Egress-Grant                                 on all, where the request brings one
"""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from runner.fileserver.retry import Failure, TransferFailed, delay, of_status

GRANT = "X-CodeAPI-Egress-Grant"
READ_ONLY = "X-Read-Only"
ORIGINAL_FILENAME = "X-Original-Filename"

READ_BYTES = 256 << 10
LISTING_BYTES_MAX = 4 << 20
_LISTING = "detail=normalized"
_CONNECT_TIMEOUT = 5.0
#: What encodeURIComponent of the other side leaves as it is, beside letters and digits.
_UNRESERVED = "-_.!~*'()"
_DEFAULT_TYPE = "application/octet-stream"
#: The types that Python knows, not those of files on this machine: the same everywhere.
_TYPES = mimetypes.MimeTypes(filenames=())

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectName:
    """What the control plane calls an object, and the grant to get at it."""

    storage_session_id: str
    id: str
    grant: str | None = field(default=None, repr=False)


class ObjectInfo(msgspec.Struct, frozen=True):
    """A row of a listing; what else it says is not looked at."""

    id: str
    name: str
    storage_session_id: str


#: Takes the next piece of an object's bytes; an empty one says: from the start again.
Sink = Callable[[bytes], Awaitable[None]]
#: The bytes to upload, anew for each try.
Body = Callable[[], AsyncIterator[bytes]]


class FileServer:
    """One server, or one gateway. Every transfer has a connection of its own.

    A server that lies about a length cannot answer the next request with what is left over.
    """

    def __init__(self, base_url: str, *, timeout: float) -> None:
        """`timeout`: seconds in which a download has to go on, and an upload to be done."""
        self._base = base_url.rstrip("/")
        self._timeout = timeout
        self._client: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        """Ends the transfers under way."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def download(self, name: ObjectName, sink: Sink, *, max_bytes: int) -> bool:
        """Gives the object's bytes to `sink`; whether it is read-only. Raises `TransferFailed`."""
        return await self._tried(lambda: self._get(self._url(name), name.grant, sink, max_bytes))

    async def upload(self, name: ObjectName, body: Body, *, size: int, filename: str) -> None:
        """Puts `size` bytes under the name. Raises `TransferFailed`, or what `body` raises."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._tried(lambda: self._upload(name, body, size, filename))
        except TimeoutError:
            raise TransferFailed(Failure.TIMED_OUT) from None

    async def list_objects(self, session: str, *, grant: str | None) -> list[ObjectInfo]:
        """What lies in a storage session. Not tried again. Raises `TransferFailed`."""
        body = bytearray()
        url = URL(f"{self._base}/sessions/{_quoted(session)}/objects?{_LISTING}", encoded=True)

        async def take(chunk: bytes) -> None:
            body.extend(chunk)

        await self._get(url, grant, take, LISTING_BYTES_MAX)
        try:
            return msgspec.json.decode(body, type=list[ObjectInfo])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise TransferFailed(Failure.MALFORMED) from None

    async def _tried(self, transfer: Callable[[], Awaitable[T]]) -> T:
        attempt = 1
        while True:
            try:
                return await transfer()
            except TransferFailed as failed:
                # Spread, not secret.
                wait = delay(attempt, failed.failure, random=random.random())  # noqa: S311
                if wait is None:
                    raise
            await asyncio.sleep(wait)
            attempt += 1

    async def _get(self, url: URL, grant: str | None, sink: Sink, max_bytes: int) -> bool:
        with _told():
            async with self._http().get(
                url,
                headers=_headers(grant) | {"Accept-Encoding": "identity"},
                allow_redirects=False,
                timeout=self._patience(sock_read=self._timeout),
            ) as response:
                _refuse(response)
                length = response.content_length
                if length is not None and length > max_bytes:
                    raise TransferFailed(Failure.TOO_LARGE)
                await sink(b"")
                size = 0
                while chunk := await response.content.read(READ_BYTES):
                    size += len(chunk)
                    if size > max_bytes:
                        raise TransferFailed(Failure.TOO_LARGE)
                    await sink(chunk)
                return response.headers.get(READ_ONLY, "").lower() == "true"

    async def _upload(self, name: ObjectName, body: Body, size: int, filename: str) -> None:
        source = body()
        failures: list[Exception] = []
        headers = {
            "Content-Length": str(size),
            "Content-Type": _TYPES.guess_type(filename, strict=False)[0] or _DEFAULT_TYPE,
            ORIGINAL_FILENAME: quote(filename, safe=_UNRESERVED),
        }
        try:
            with _told():
                async with self._http().put(
                    self._url(name),
                    data=_noting(source, failures) if size else b"",
                    headers=_headers(name.grant) | headers,
                    allow_redirects=False,
                    timeout=self._patience(),
                ) as response:
                    _refuse(response)
        except TransferFailed:
            # The client only says that the connection broke when it is the body that failed.
            if failures:
                raise failures[0] from None
            raise

    def _http(self) -> aiohttp.ClientSession:
        if self._client is None:
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._client

    def _url(self, name: ObjectName) -> URL:
        session, object_id = _quoted(name.storage_session_id), _quoted(name.id)
        return URL(f"{self._base}/sessions/{session}/objects/{object_id}", encoded=True)

    def _patience(self, *, sock_read: float | None = None) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(
            total=None,
            sock_connect=min(_CONNECT_TIMEOUT, self._timeout),
            sock_read=sock_read,
        )


def _headers(grant: str | None) -> dict[str, str]:
    return {} if grant is None else {GRANT: grant}


def _quoted(name: str) -> str:
    """One path segment, whatever is in it."""
    return quote(name, safe="")


def _refuse(response: aiohttp.ClientResponse) -> None:
    failure = of_status(response.status)
    if failure is None and response.headers.get("Content-Encoding", "identity") != "identity":
        failure = Failure.MALFORMED
    if failure is not None:
        raise TransferFailed(failure)


async def _noting(source: AsyncIterator[bytes], failures: list[Exception]) -> AsyncIterator[bytes]:
    try:
        async for chunk in source:
            yield chunk
    except Exception as error:
        failures.append(error)
        raise


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """The client's many exceptions as ours."""
    try:
        yield
    except aiohttp.ServerTimeoutError:
        raise TransferFailed(Failure.TIMED_OUT) from None
    except aiohttp.ClientPayloadError:
        raise TransferFailed(Failure.TRUNCATED) from None
    except aiohttp.ClientConnectionError:
        raise TransferFailed(Failure.UNREACHABLE) from None
    except (aiohttp.ClientError, ValueError):
        # A response that is not HTTP, or whose body is not as long as it says.
        raise TransferFailed(Failure.MALFORMED) from None
