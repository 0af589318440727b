"""A checkpoint that is not whole, or not what was sealed, is refused and leaves nothing."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon, Reply
from tests.mounts import tmpfs

pytestmark = pytest.mark.asyncio(loop_scope="module")

CASES = 64
REFUSALS = {
    "checkpoint_corrupt",
    "checkpoint_unauthentic",
    "checkpoint_unsafe",
    "checkpoint_wrong_session",
}
FILL = """
import os
os.makedirs('a/b')
open('a/b/random', 'wb').write(os.urandom(40_000))
open('a/text', 'w').write('the same line again\\n' * 4_000)
os.link('a/text', 'linked')
os.symlink('a/b/random', 'pointer')
for n in range(20): open(f'small-{n}', 'w').write(str(n) * n)
"""
#: Shows what is there, and leaves something for the next refusal to wipe.
LOOK = "ls -A; echo left > of-the-last-life"


def spread(length: int) -> list[int]:
    """`CASES` offsets from the first byte to the last."""
    return [number * (length - 1) // (CASES - 1) for number in range(CASES)]


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    """Archives that were made in this module."""
    return {}


async def archive_of(daemon: Daemon, made: dict[str, bytes]) -> bytes:
    if SESSION not in made:
        filled = await daemon.execute(FILL, session=SESSION)
        assert filled.json["run"]["code"] == 0, filled.json["run"]
        made[SESSION] = (await daemon.checkpoint(SESSION)).body
    return made[SESSION]


async def assert_refused(
    daemon: Daemon, archive: bytes, where: object, *, session: str = SESSION, **more: Any
) -> str:
    """Refused with a typed error; nothing of before and nothing of the archive is there after."""
    reply: Reply = await daemon.restore(session, archive, **more)
    error = reply.json
    assert (reply.status, error.get("error") in REFUSALS) == (422, True), (where, error)
    assert (error["retryable"], error["recycle"]) == (False, False)
    assert await daemon.paths(session) == [], where
    health = (await daemon.get("/health")).json["session"]
    assert (health["state"], health["dirty"]) == ("fresh", None), where
    code: str = error["error"]
    return code


async def assert_works_on(daemon: Daemon, where: object, *, session: str = SESSION) -> None:
    """A program finds nothing, and what it makes is new to the client."""
    turn = await daemon.execute(LOOK, language="bash", session=session)
    assert turn.json["run"]["stdout"] == "main\n", where
    assert [file["name"] for file in turn.json["files"]] == ["of-the-last-life"], where


async def test_the_archive_itself_is_taken(runner: Daemon, made: dict[str, bytes]) -> None:
    archive = await archive_of(runner, made)
    assert (await runner.restore(SESSION, archive)).status == 200
    assert len(await runner.paths(SESSION)) == 24


async def work_on(daemon: Daemon, number: int, where: int) -> None:
    """Leaves something for the next refusal to wipe: by a program, or quicker."""
    if number % 4 == 0:
        await assert_works_on(daemon, where)
    else:
        (daemon.data_root / "workspace/of-the-last-life").write_text("left")


async def test_truncated_anywhere_it_is_refused(runner: Daemon, made: dict[str, bytes]) -> None:
    archive = await archive_of(runner, made)
    for number, length in enumerate(spread(len(archive))):
        assert await assert_refused(runner, archive[:length], length) == "checkpoint_corrupt"
        await work_on(runner, number, length)


async def test_with_a_byte_flipped_anywhere_it_is_refused(
    runner: Daemon, made: dict[str, bytes]
) -> None:
    archive = await archive_of(runner, made)
    for number, offset in enumerate(spread(len(archive))):
        # All of the byte, or one bit of it.
        mask = 0xFF if number % 2 else 1 << (number // 2) % 8
        flipped = bytearray(archive)
        flipped[offset] ^= mask
        await assert_refused(runner, bytes(flipped), (offset, mask))
        await work_on(runner, number, offset)


async def test_with_bytes_added_it_is_refused(runner: Daemon, made: dict[str, bytes]) -> None:
    archive = await archive_of(runner, made)
    for extra in (b"\0", b"x", b"\0" * 512, archive, gzip.compress(b"")):
        assert await assert_refused(runner, archive + extra, extra[:8]) == "checkpoint_unsafe"
        await assert_works_on(runner, extra[:8])
    await assert_refused(runner, b"x" + archive, "before")


async def test_where_the_wipe_fails_too_the_refusal_says_that_the_vm_is_dirty(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch()
    await daemon.execute("mkdir held; echo 1 > kept", language="bash", session=SESSION)
    archive = (await daemon.checkpoint(SESSION)).body
    # What is mounted on cannot be removed.
    with tmpfs(daemon.data_root / "workspace/held"):
        refused = await daemon.restore(SESSION, archive[:-1])
        assert (refused.status, refused.json["error"]) == (422, "checkpoint_corrupt")
        assert (refused.json["retryable"], refused.json["recycle"]) == (False, True)
        session = (await daemon.get("/health")).json["session"]
        assert (session["state"], session["dirty"]) == ("dirty", "restoring")
        reply = await daemon.execute("ls", language="bash", session=SESSION)
        assert (reply.status, reply.json["reason"]) == (409, "restoring")
    assert (await daemon.restore(SESSION, archive)).status == 200
    reply = await daemon.execute("cat kept", language="bash", session=SESSION)
    assert reply.json["run"]["stdout"] == "1\n"


async def test_what_is_no_archive_is_refused(runner: Daemon) -> None:
    empty_tar = io.BytesIO()
    tarfile.open(fileobj=empty_tar, mode="w").close()
    for content in (b"", b"\x1f\x8b", b"no archive", gzip.compress(b""), empty_tar.getvalue()):
        await assert_refused(runner, content, content[:8])
    code = await assert_refused(runner, gzip.compress(empty_tar.getvalue()), "empty tar")
    assert code == "checkpoint_unauthentic"


def cut(archive: bytes) -> tuple[bytes, bytes]:
    """The tar of an archive: everything before the sidecar, and the sidecar with the end."""
    plain = gzip.decompress(archive)
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        sidecar = tar.getmembers()[-1]
    assert sidecar.name == "runner-sidecar.json"
    return plain[: sidecar.offset], plain[sidecar.offset :]


async def test_no_sidecar_but_its_own_is_taken(launch: Callable[..., Any]) -> None:
    shared = {"RUNNER_SIDECAR_KEY": "A" * 43}
    first: Daemon = await launch("first", **shared)
    second: Daemon = await launch("second", **shared)
    await first.execute("open('x', 'w').write('of the first')", session=SESSION)
    await second.execute("open('x', 'w').write('of the other')", session="another")
    mine = (await first.checkpoint(SESSION)).body
    await first.execute("open('x', 'w').write('of a later turn')", session=SESSION)
    later = (await first.checkpoint(SESSION)).body
    theirs = (await second.checkpoint("another")).body

    for name, body, sidecar in (
        ("another session's sidecar", mine, theirs),
        ("my sidecar on another session's files", theirs, mine),
        ("the sidecar of an earlier turn", later, mine),
        ("the sidecar of a later turn", mine, later),
    ):
        spliced = gzip.compress(cut(body)[0] + cut(sidecar)[1], mtime=0)
        assert await assert_refused(first, spliced, name) == "checkpoint_unauthentic", name
        await assert_works_on(first, name)
    again = gzip.compress(b"".join(cut(mine)), mtime=0)
    assert await assert_refused(first, again, "compressed again") == "checkpoint_corrupt"
    assert (await first.restore(SESSION, mine)).status == 200
    without = gzip.compress(cut(mine)[0] + bytes(1024), mtime=0)
    assert await assert_refused(first, without, "no sidecar") == "checkpoint_unauthentic"
    await assert_refused(first, theirs, "another session's archive")


async def test_another_sessions_archive_is_named_so_where_the_key_is_right(
    launch: Callable[..., Any],
) -> None:
    key = {"X-Sidecar-Key": "B" * 43}
    first: Daemon = await launch("first")
    second: Daemon = await launch("second")
    await second.execute("open('x', 'w').write('secret')", session="another")
    theirs = (await second.checkpoint("another", headers=key)).body
    code = await assert_refused(first, theirs, "another session", headers=key)
    assert code == "checkpoint_wrong_session"
    await assert_works_on(first, "another session")
