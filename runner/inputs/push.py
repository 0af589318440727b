"""One push: a tar.gz of `<key>` and `<key>.json` pairs into the cache, all of them or none.

A push has a thread of its own, fed over a bounded hand-over: one that stalls holds up nobody.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import msgspec

from runner.checkpoint import gzipframe
from runner.checkpoint.handover import AbandonedError, Block, HandoverFromLoop
from runner.errors import (
    BodyTooLarge,
    CheckpointRefused,
    CheckpointTooLarge,
    Internal,
)
from runner.finish import finish
from runner.inputs.cache import Arrival, InputCache
from runner.inputs.ustar import FlatReader, Member, refuse
from runner.workspace.descent import Parts
from runner.workspace.full import full_disk_is_told, is_full
from runner.workspace.tree import Tree

log = logging.getLogger(__name__)

#: As many as a probe may name.
PAIRS_MAX = 256
_JSON_BYTES_MAX = 4096
#: Blocks of a body that may wait for the disk.
_AHEAD = 4
_MEMBER = re.compile(rb"([0-9a-f]{64})(\.json)?")


class Facts(msgspec.Struct, frozen=True, rename="camel"):
    """What `<key>.json` says of its object. Unknown fields are ignored."""

    read_only: bool = False


@dataclass(slots=True)
class _Pair:
    parts: Parts | None = None
    sha256: str = ""
    size: int = 0
    facts: Facts | None = None


@dataclass(slots=True)
class _Unpacked:
    """What has come so far, and what of it is still allowed to come."""

    pairs: dict[str, _Pair] = field(default_factory=dict)
    expanded: int = 0


class Push:
    """Fed from the event loop; an async context manager. Leaving it clears its staging."""

    def __init__(self, cache: InputCache, staging: Tree, *, declared: int | None) -> None:
        """`declared`: the bytes of all members' bodies, if the sender says how many."""
        self._cache = cache
        self._staging = staging
        self._declared = declared
        self._root = (b"push-" + secrets.token_hex(8).encode(),)
        self._incoming = HandoverFromLoop(_AHEAD)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="inputs-push")
        self._result: Future[int]

    async def __aenter__(self) -> Self:
        self._result = self._worker.submit(self._run)
        return self

    async def feed(self, chunk: Block) -> None:
        """Takes compressed bytes, and waits while there is no room; raises what they deserve."""
        try:
            await self._incoming.put_async(chunk)
        except AbandonedError:
            await asyncio.wrap_future(self._result)
            raise Internal("the push ended early") from None

    async def finish(self) -> int:
        """The body has ended. How many pairs are now in the cache."""
        self._incoming.end()
        return await asyncio.wrap_future(self._result)

    async def __aexit__(self, *_: object) -> None:
        # Without `finish` the sender is gone: what came is not the whole archive.
        self._incoming.end(refuse("the archive is truncated"))
        try:
            await finish(self._leave())
        finally:
            self._worker.shutdown(wait=False)

    async def _leave(self) -> None:
        """Clears staging behind `_run`, on the same single thread."""
        await asyncio.get_running_loop().run_in_executor(self._worker, self._clear)

    def _run(self) -> int:
        try:
            with full_disk_is_told("the inputs do not fit"):
                return self._store()
        finally:
            self._incoming.abandon()

    def _store(self) -> int:
        self._staging.make_dir(self._root, uid=0, gid=0, mode=0o700).close()
        arrivals = unpack(
            self._incoming,
            self._staging,
            self._root,
            declared=self._declared,
            max_bytes=self._cache.max_bytes,
            make_room=self._cache.evict,
        )
        self._cache.store(self._staging, arrivals)
        return len(arrivals)

    def _clear(self) -> None:
        try:
            self._staging.remove(self._root)
        except OSError:
            # Only root gets into staging, and the next start sweeps it.
            log.exception("staging could not be cleared")


def unpack(
    chunks: Iterable[Block],
    staging: Tree,
    root: Parts,
    *,
    declared: int | None,
    max_bytes: int,
    make_room: Callable[[int], int],
) -> list[Arrival]:
    """Reads the whole archive into files below `root`. Raises a 4xx, or `InsufficientStorage`.

    `make_room(bytes)` frees space on the disk and says whether it could; it is asked once.
    """
    if declared is not None and declared > max_bytes:
        raise BodyTooLarge("the declared bytes are more than the cache takes", reason="declared")
    state = _Unpacked()
    reader = FlatReader(gzipframe.decompress(_any_writer(chunks), max_bytes=max_bytes))
    room = _Room(make_room)
    try:
        for member in reader.members():
            _count(state, member, declared, max_bytes)
            _take(state, member, reader, staging, root, room)
    except CheckpointTooLarge:
        raise BodyTooLarge("the archive is larger than the cache takes") from None
    except CheckpointRefused as error:
        # Only of the gzip frame: what it says is of the bytes, not of checkpoints.
        raise refuse(error.detail) from None
    if declared is not None and state.expanded != declared:
        raise refuse("the members' bytes are not as many as declared")
    return [_arrival(key, pair) for key, pair in state.pairs.items()]


def _any_writer(chunks: Iterable[Block]) -> Iterator[Block]:
    """Puts our own time, flags and system into a plain gzip header: here they mean nothing."""
    start = b""
    for chunk in chunks:
        if len(start) >= len(gzipframe.HEADER):
            yield chunk
            continue
        start += chunk
        if len(start) >= len(gzipframe.HEADER):
            kept = 4  # Magic, method and the flags that say what else the header holds.
            yield start[:kept] + gzipframe.HEADER[kept:] + start[len(gzipframe.HEADER) :]
    if len(start) < len(gzipframe.HEADER):
        yield start


def _count(state: _Unpacked, member: Member, declared: int | None, max_bytes: int) -> None:
    state.expanded += member.size
    if declared is not None and state.expanded > declared:
        raise refuse("the members' bytes are more than declared")
    if state.expanded > max_bytes:
        raise BodyTooLarge("the inputs are larger than the cache takes", reason="expanded")


def _take(
    state: _Unpacked,
    member: Member,
    reader: FlatReader,
    staging: Tree,
    root: Parts,
    room: _Room,
) -> None:
    match = _MEMBER.fullmatch(member.name)
    if match is None:
        raise refuse("a member is not called <key> or <key>.json")
    key = match[1].decode("ascii")
    pair = state.pairs.setdefault(key, _Pair())
    if len(state.pairs) > PAIRS_MAX:
        raise refuse(f"there are more than {PAIRS_MAX} pairs")
    if match[2]:
        if pair.facts is not None or member.size > _JSON_BYTES_MAX:
            raise refuse("a member is there twice, or its JSON is too long")
        pair.facts = _facts(b"".join(reader.body()))
        return
    if pair.parts is not None:
        raise refuse("a member is there twice")
    pair.parts = (*root, match[1])
    fd = room.create(staging, pair.parts)
    try:
        pair.sha256 = _write(fd, reader.body(), room, member.size)
    finally:
        os.close(fd)
    pair.size = member.size


def _facts(raw: bytes) -> Facts:
    try:
        return msgspec.json.decode(raw, type=Facts)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise refuse("a <key>.json is not what it should be") from None


def _arrival(key: str, pair: _Pair) -> Arrival:
    if pair.parts is None or pair.facts is None:
        raise refuse("a member of a pair is not there")
    return Arrival(key, pair.parts, pair.sha256, pair.size, pair.facts.read_only)


class _Room:
    """Space on the disk, made once in a push by dropping what nobody uses."""

    def __init__(self, make_room: Callable[[int], int]) -> None:
        self._make_room = make_room
        self._asked = False

    def create(self, staging: Tree, parts: Parts) -> int:
        try:
            return staging.create(parts)
        except OSError as error:
            self.retry(error, 1)
            return staging.create(parts)

    def retry(self, error: OSError, needed_bytes: int) -> None:
        """Returns if the same write is worth another try."""
        if not is_full(error) or self._asked or not self._make_room(needed_bytes):
            raise error
        self._asked = True


def _write(fd: int, pieces: Iterable[bytes], room: _Room, size: int) -> str:
    """Writes the pieces from the start of the file; their hash (hex)."""
    digest = hashlib.sha256()
    offset = 0
    for piece in pieces:
        digest.update(piece)
        view = memoryview(piece)
        while view:
            try:
                written = os.pwrite(fd, view, offset)
            except OSError as error:
                room.retry(error, size - offset)
                continue
            offset += written
            view = view[written:]
    return digest.hexdigest()
