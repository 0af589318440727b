"""Where an input by reference comes from: the cache of pushed ones, else the file server.

What comes out is there and verified: the workspace has not been touched when something is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from runner.errors import InputUnavailable, InsufficientStorage, RunnerError
from runner.execution.request import ReferencedFile
from runner.fileserver.client import FileServer, ObjectName
from runner.fileserver.retry import Failure, TransferFailed
from runner.finish import finish
from runner.inputs import markers
from runner.inputs.cache import InputCache, Pinned
from runner.inputs.keys import cache_key
from runner.longwork import LongWork
from runner.workspace.descent import Parts
from runner.workspace.full import full_disk_is_told
from runner.workspace.paths import SafePath
from runner.workspace.priming import Inline, Input, Source, Staged, Stored
from runner.workspace.stopping import Stop
from runner.workspace.tree import Tree, write_all

NOT_DELIVERED = "not_delivered"
DOWNLOADS_AT_ONCE = 8
#: All downloads of a request together, in seconds: a server that drips holds no session for good.
DOWNLOADS_TIMEOUT = 300.0
_NO_FIT = "the inputs do not fit"

#: Storage session and id: what names an object on the file server.
_Object = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Fetched:
    """An object that lies in staging."""

    parts: Parts
    sha256: str
    size: int
    read_only: bool


@dataclass(frozen=True, slots=True)
class Resolved:
    """Inputs, and what the client calls each of them."""

    inputs: tuple[Input, ...]
    references: tuple[ReferencedFile, ...]


class Resolver:
    """Finds the inputs of requests."""

    def __init__(
        self,
        cache: InputCache,
        staging: Tree,
        server: FileServer | None,
        *,
        file_max_bytes: int,
        lane: LongWork,
    ) -> None:
        """`lane`: where pushed inputs are verified."""
        self._cache = cache
        self._staging = staging
        self._server = server
        self._file_max_bytes = file_max_bytes
        self._lane = lane

    async def make_room(self) -> bool:
        """Gives the disk back what the cache holds and nobody uses; whether that was anything."""
        return await finish(asyncio.to_thread(self._cache.evict, self._cache.max_bytes)) > 0

    @contextlib.asynccontextmanager
    async def resolve(
        self,
        files: Sequence[ReferencedFile],
        *,
        grant: str | None,
        beside: Sequence[SafePath] | None = None,
    ) -> AsyncIterator[Resolved]:
        """The files as inputs, valid inside the context.

        With `beside`, the paths that are taken otherwise, markers of empty directories that lie by
        the fetched files come along.

        Raises `InputUnavailable` naming the first that cannot be had, or `InsufficientStorage`.
        """
        root = (b"fetch-" + secrets.token_hex(8).encode(),)
        pinned: dict[str, Pinned] = {}
        try:
            keys = {file: _key(file) for file in files}
            if keys:
                wanted = set(keys.values())
                await self._lane.run(lambda stop: self._pin(wanted, pinned, stop))
            absent = [file for file in files if keys[file] not in pinned]
            fetched = await self._fetch_all(absent, root, grant) if absent else {}
            moved = _single_use(absent)
            inputs = [
                self._input(file, pinned.get(keys[file]), fetched.get(_object(file)), moved)
                for file in files
            ]
            kept: list[ReferencedFile] = []
            if beside is not None and absent and self._server is not None:
                taken = [*beside, *(file.path for file in files)]
                kept = await markers.find(self._server, absent, taken, grant=grant)
                inputs += [_marker(file) for file in kept]
            yield Resolved(tuple(inputs), (*files, *kept))
        finally:
            await finish(asyncio.to_thread(self._leave, root, pinned))

    def _pin(self, keys: set[str], pinned: dict[str, Pinned], stop: Stop) -> None:
        for key in keys:
            found = self._cache.pin(key, stop)
            if found is not None:
                pinned[key] = found

    def _leave(self, root: Parts, pinned: dict[str, Pinned]) -> None:
        for each in pinned.values():
            self._cache.unpin(each)
        self._staging.remove(root)

    def _input(
        self,
        file: ReferencedFile,
        pinned: Pinned | None,
        fetched: _Fetched | None,
        moved: set[_Object],
    ) -> Input:
        source: Source
        if pinned is not None:
            source = Stored(pinned.tree, pinned.parts, pinned.sha256, pinned.size)
            read_only = pinned.read_only
        else:
            assert fetched is not None
            read_only = fetched.read_only
            if _object(file) in moved:
                source = Staged(fetched.parts, fetched.sha256, fetched.size)
            else:
                source = Stored(self._staging, fetched.parts, fetched.sha256, fetched.size)
        return Input(file.path, source, read_only, file.id, file.storage_session_id)

    async def _fetch_all(
        self, files: Sequence[ReferencedFile], root: Parts, grant: str | None
    ) -> dict[_Object, _Fetched]:
        """Once more when the disk was full and the cache could spare something."""
        try:
            return await self._fetch(files, root, grant)
        except InsufficientStorage:
            if not await self.make_room():
                raise
            await finish(asyncio.to_thread(self._staging.remove, root))
            return await self._fetch(files, root, grant)

    async def _fetch(
        self, files: Sequence[ReferencedFile], root: Parts, grant: str | None
    ) -> dict[_Object, _Fetched]:
        if self._server is None:
            raise _unavailable(files[0], NOT_DELIVERED, retryable=False)
        await finish(asyncio.to_thread(self._make_root, root))
        at_once = asyncio.Semaphore(DOWNLOADS_AT_ONCE)
        wanted = {_object(file): file for file in reversed(files)}
        fetched: dict[_Object, _Fetched] = {}

        async def fetch(number: int, file: ReferencedFile, server: FileServer) -> None:
            async with at_once:
                parts = (*root, b"%d" % number)
                fetched[_object(file)] = await self._fetch_one(server, file, parts, grant)

        try:
            async with asyncio.timeout(DOWNLOADS_TIMEOUT), asyncio.TaskGroup() as group:
                for number, file in enumerate(wanted.values()):
                    group.create_task(fetch(number, file, self._server))
        except TimeoutError:
            late = next(file for file in files if _object(file) not in fetched)
            raise _unavailable(late, Failure.TIMED_OUT.value, retryable=True) from None
        except BaseExceptionGroup as failures:
            for failure in failures.exceptions:
                if isinstance(failure, RunnerError):
                    raise failure from None
            raise
        return fetched

    def _make_root(self, root: Parts) -> None:
        with full_disk_is_told(_NO_FIT):
            self._staging.make_dir(root, uid=0, gid=0, mode=0o700).close()

    async def _fetch_one(
        self, server: FileServer, file: ReferencedFile, parts: Parts, grant: str | None
    ) -> _Fetched:
        name = ObjectName(file.storage_session_id, file.id, grant)
        with full_disk_is_told(_NO_FIT):
            fd = await finish(asyncio.to_thread(self._staging.create, parts), dispose=os.close)
            spool = _Spool(fd)
            try:
                read_only = await server.download(name, spool.take, max_bytes=self._file_max_bytes)
            except TransferFailed as failed:
                raise _unavailable(file, failed.failure.value, retryable=failed.retryable) from None
            finally:
                os.close(fd)
        return _Fetched(parts, spool.sha256, spool.size, read_only)


class _Spool:
    """Bytes into a file, hashed on the way."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    async def take(self, chunk: bytes) -> None:
        """The next bytes; with none, from the start again."""
        await finish(asyncio.to_thread(self._take, chunk))

    def _take(self, chunk: bytes) -> None:
        if not chunk:
            os.ftruncate(self._fd, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._digest = hashlib.sha256()
            self.size = 0
            return
        write_all(self._fd, chunk)
        self._digest.update(chunk)
        self.size += len(chunk)


def _marker(file: ReferencedFile) -> Input:
    return Input(
        file.path, Inline(b""), input_id=file.id, storage_session_id=file.storage_session_id
    )


def _key(file: ReferencedFile) -> str:
    return file.cache_key or cache_key(file.storage_session_id, file.id)


def _object(file: ReferencedFile) -> _Object:
    return file.storage_session_id, file.id


def _single_use(files: Sequence[ReferencedFile]) -> set[_Object]:
    """Objects with one destination: their file can be moved there instead of copied."""
    named = [_object(file) for file in files]
    return {each for each in named if named.count(each) == 1}


def _unavailable(file: ReferencedFile, reason: str, *, retryable: bool) -> InputUnavailable:
    return InputUnavailable(
        f"{str(file.path)!a}", field=str(file.path), reason=reason, retryable=retryable
    )
