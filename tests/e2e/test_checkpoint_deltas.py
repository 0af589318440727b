"""Checkpoints that cost what changed, as a control plane takes and gives them."""

from __future__ import annotations

import asyncio
import gzip
import io
import tarfile
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from tests.conftest import SESSION
from tests.harness import Daemon, Reply
from tests.terminals import attached

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = {"X-Sidecar-Key": "K" * 43}
BALLAST = """
import os
import shutil; shutil.rmtree('d', ignore_errors=True)
os.makedirs('d/e')
for n in range(40): open(f'd/{n}', 'wb').write(os.urandom(20_000))
os.link('d/1', 'd/second-name')
"""
TURNS = (
    "open('d/3', 'ab').write(b'more')",
    "import os, shutil; os.remove('d/4'); shutil.rmtree('d/e'); open('d/e', 'w').write('file now')",
    "import os; os.rename('d/5', 'd/moved'); os.symlink('moved', 'd/5'); os.chmod('d/6', 0o600)",
)
LOOK = """
import hashlib, os
for top, dirs, files in sorted(os.walk('.')):
    for name in sorted(dirs + files):
        path = os.path.join(top, name)
        s = os.lstat(path)
        body = open(path, 'rb').read() if os.path.isfile(path) else b''
        links = 0 if os.path.isdir(path) else s.st_nlink
        print(path, oct(s.st_mode), links, s.st_mtime_ns if name != 'look.py' else 0,
              hashlib.sha256(body).hexdigest(), os.path.islink(path) and os.readlink(path))
"""


async def look(daemon: Daemon) -> str:
    reply = await daemon.execute(LOOK, session=SESSION, name="look.py")
    assert reply.json["run"]["code"] == 0, reply.json["run"]
    return str(reply.json["run"]["stdout"])


async def after(daemon: Daemon, base: Reply | None = None, **headers: str) -> Reply:
    """The checkpoint now, as a delta to `base` if it can be one."""
    if base is not None:
        headers["If-Checkpoint-Base"] = base.headers["ETag"]
    reply = await daemon.checkpoint(SESSION, headers=KEY | headers)
    assert reply.status == 200
    return reply


def names(reply: Reply) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(reply.body))) as tar:
        return tar.getnames()


async def chain(daemon: Daemon) -> list[Reply]:
    """A full checkpoint and a delta after each turn."""
    assert (await daemon.execute(BALLAST, session=SESSION)).json["run"]["code"] == 0
    replies = [await after(daemon)]
    for turn in TURNS:
        ran = await daemon.execute(turn, session=SESSION)
        assert ran.json["run"]["code"] == 0, ran.json["run"]
        replies.append(await after(daemon, replies[-1]))
    kinds = [reply.headers["X-Checkpoint-Kind"] for reply in replies]
    assert kinds == ["full", "delta", "delta", "delta"]
    return replies


def parts(replies: list[Reply], *, lengths: bool = True) -> aiohttp.MultipartWriter:
    body = aiohttp.MultipartWriter("mixed")
    for reply in replies:
        part = body.append(reply.body, {"Content-Type": "application/x-gtar"})
        if not lengths:
            part.headers.popall("Content-Length", None)
    return body


async def restore_parts(daemon: Daemon, body: aiohttp.MultipartWriter) -> Reply:
    return await daemon.restore(
        SESSION, body, headers=KEY | {"Content-Type": f"multipart/mixed; boundary={body.boundary}"}
    )


async def assert_wiped(daemon: Daemon) -> None:
    assert await daemon.paths(SESSION) == []
    assert list((daemon.data_root / "staging").iterdir()) == []


@pytest.mark.parametrize("lengths", [True, False])
async def test_a_base_and_its_deltas_in_one_request(
    launch: Callable[..., Any], lengths: bool
) -> None:
    first: Daemon = await launch("first")
    second: Daemon = await launch("second")
    replies = await chain(first)
    assert len(replies[1].body) < len(replies[0].body) / 10
    assert names(replies[1])[:3] == ["runner-delta", "session", "session/d"]
    restored = await restore_parts(second, parts(replies, lengths=lengths))
    assert (restored.status, restored.json["status"]) == (200, "restored")
    assert restored.json["archives"] == 4
    assert await look(second) == await look(first)


async def test_a_base_and_its_deltas_in_a_sequence(launch: Callable[..., Any]) -> None:
    first: Daemon = await launch("first")
    second: Daemon = await launch("second", RUNNER_LOCK_WAIT="0.2s")
    replies = await chain(first)
    await second.execute("open('before', 'w')", session=SESSION)
    for number, reply in enumerate(replies[:-1], start=1):
        more = KEY | {"X-Checkpoint-More": "true"}
        staged = await second.restore(SESSION, reply.body, headers=more)
        assert (staged.status, staged.json) == (202, {"archives": number, "status": "staged"})
        # It is held: what was before is not to be had any more, what comes is not yet.
        assert (await second.execute("pass", session=SESSION)).status == 409
    other = await second.restore(SESSION, replies[-1].body)
    assert (other.status, other.json["field"]) == (400, "X-Sidecar-Key")
    restored = await second.restore(SESSION, replies[-1].body, headers=KEY)
    assert (restored.status, restored.json["archives"]) == (200, 4)
    assert await look(second) == await look(first)


async def test_a_full_archive_begins_a_sequence_anew(runner: Daemon) -> None:
    replies = await chain(runner)
    more = KEY | {"X-Checkpoint-More": "true"}
    for count in (1, 2):
        staged = await runner.restore(SESSION, replies[0].body, headers=more)
        assert staged.status == 202, count
    assert (await runner.restore(SESSION, replies[1].body, headers=KEY)).status == 200
    assert (await runner.file(SESSION, "d/3")).body.endswith(b"more")


@pytest.mark.parametrize(
    "order",
    [[0, 2], [0, 1, 3], [0, 2, 1], [1], [0, 1, 1], [0, 0], [1, 0]],
    ids=["missing", "missing-later", "reordered", "no-base", "twice", "two-bases", "base-last"],
)
async def test_a_broken_chain_is_refused_and_wiped(runner: Daemon, order: list[int]) -> None:
    replies = await chain(runner)
    reply = await restore_parts(runner, parts([replies[number] for number in order]))
    assert (reply.status, reply.json["error"], reply.json["reason"]) == (
        422,
        "checkpoint_corrupt",
        "chain",
    )
    await assert_wiped(runner)


async def test_a_damaged_link_is_refused_and_wiped(runner: Daemon) -> None:
    replies = await chain(runner)
    for number, at in ((0, 5000), (1, 40), (3, -20)):
        bodies = [bytearray(reply.body) for reply in replies]
        bodies[number][at] ^= 1
        body = aiohttp.MultipartWriter("mixed")
        for each in bodies:
            body.append(bytes(each), {"Content-Type": "application/x-gtar"})
        reply = await restore_parts(runner, body)
        assert (reply.status, reply.json["error"][:11]) == (422, "checkpoint_"), number
        await assert_wiped(runner)


async def test_a_delta_of_another_key_is_refused_and_wiped(runner: Daemon) -> None:
    full = await chain(runner)
    await runner.execute("open('x', 'w')", session=SESSION)
    base = {"If-Checkpoint-Base": full[-1].headers["ETag"]}
    foreign = await runner.checkpoint(SESSION, headers=base | {"X-Sidecar-Key": "A" * 43})
    assert foreign.headers["X-Checkpoint-Kind"] == "delta"
    reply = await restore_parts(runner, parts([*full, foreign]))
    assert (reply.status, reply.json["error"]) == (422, "checkpoint_unauthentic")
    await assert_wiped(runner)


@pytest.mark.parametrize("cut", ["no-end", "nothing", "not-multipart"])
async def test_a_body_that_is_no_multipart_is_refused(runner: Daemon, cut: str) -> None:
    await runner.execute("open('f', 'w').write('x')", session=SESSION)
    full = await after(runner)
    headers = b"--b\r\nContent-Type: application/x-gtar\r\n\r\n"
    body = {
        "no-end": headers + full.body + b"\r\n",
        "nothing": b"--b--\r\n",
        "not-multipart": full.body,
    }[cut]
    media_type = KEY | {"Content-Type": "multipart/mixed; boundary=b"}
    reply = await runner.restore(SESSION, body, headers=media_type)
    # Without an end the archive has bytes behind it.
    assert reply.json["error"] == ("checkpoint_unsafe" if cut == "no-end" else "checkpoint_corrupt")
    assert reply.status == 422
    await assert_wiped(runner)


async def test_a_sequence_that_fails_is_wiped(runner: Daemon) -> None:
    replies = await chain(runner)
    more = KEY | {"X-Checkpoint-More": "true"}
    assert (await runner.restore(SESSION, replies[0].body, headers=more)).status == 202
    reply = await runner.restore(SESSION, replies[2].body, headers=KEY)
    assert (reply.status, reply.json["reason"]) == (422, "chain")
    await assert_wiped(runner)
    assert (await runner.execute("pass", session=SESSION)).status == 200


async def test_an_unknown_base_is_answered_in_full(runner: Daemon) -> None:
    await runner.execute("open('f', 'w').write('x')", session=SESSION)
    for base in ('"0123456789012345678901234567890123456789"', '"x"', "*", '"../state/key"', ""):
        reply = await runner.checkpoint(SESSION, headers={"If-Checkpoint-Base": base})
        assert (reply.status, reply.headers["X-Checkpoint-Kind"]) == (200, "full")
        assert "X-Checkpoint-Base" not in reply.headers
        assert reply.headers["Vary"] == "If-Checkpoint-Base"


async def test_any_of_the_last_states_is_a_base_and_the_first_known_one_is_taken(
    runner: Daemon,
) -> None:
    replies = await chain(runner)
    tags = [reply.headers["ETag"] for reply in replies]
    again = await after(runner, **{"If-Checkpoint-Base": f'"unknown", {tags[1]}, {tags[3]}'})
    assert again.headers["X-Checkpoint-Base"] == tags[1]
    assert (await restore_parts(runner, parts([*replies[:2], again]))).status == 200
    assert (await runner.file(SESSION, "d/e")).body == b"file now"


async def test_an_unchanged_workspace_gives_an_empty_delta_or_a_304(runner: Daemon) -> None:
    replies = await chain(runner)
    nothing = await after(runner, replies[-1])
    assert nothing.headers["ETag"] == replies[-1].headers["ETag"]
    assert names(nothing) == ["runner-delta", "session", "runner-sidecar.json"]
    both = dict.fromkeys(("If-Checkpoint-Base", "If-None-Match"), replies[-1].headers["ETag"])
    assert (await runner.checkpoint(SESSION, headers=both)).status == 304
    assert (await restore_parts(runner, parts([*replies, nothing]))).status == 200


async def test_a_base_outlives_the_daemon_but_not_a_restore(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch("first")
    replies = await chain(daemon)
    await daemon.kill()
    daemon = await launch("first")
    assert (await after(daemon, replies[-1])).headers["X-Checkpoint-Kind"] == "delta"
    assert (await restore_parts(daemon, parts(replies))).status == 200
    assert (await after(daemon, replies[-1])).headers["X-Checkpoint-Kind"] == "full"


async def test_a_terminal_ends_what_is_known(runner: Daemon) -> None:
    replies = await chain(runner)
    async with attached(runner, SESSION):
        during = await after(runner, replies[-1])
        assert during.headers["X-Checkpoint-Kind"] == "full"
    for base in (replies[-1], during):
        assert (await after(runner, base)).headers["X-Checkpoint-Kind"] == "full"


async def test_a_tampered_index_is_not_believed(runner: Daemon) -> None:
    replies = await chain(runner)
    for damage in (lambda raw: raw[:200] + bytes(50), lambda raw: b"0" * 128 + raw[128:]):
        for path in (runner.data_root / "bases").iterdir():
            path.write_bytes(damage(path.read_bytes()))
        assert (await after(runner, replies[-1])).headers["X-Checkpoint-Kind"] == "full"


async def test_terminating_ends_a_sequence(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch("first")
    await daemon.execute("open('f', 'w').write('x')", session=SESSION)
    full = await after(daemon)
    more = KEY | {"X-Checkpoint-More": "true"}
    assert (await daemon.restore(SESSION, full.body, headers=more)).status == 202
    hook = "/aws/lambda-microvms/runtime/v1/terminate"
    async with asyncio.timeout(20):
        ended = await daemon.request("POST", hook, json={})
    assert ended.status == 200, ended.body
    assert list((daemon.data_root / "staging").iterdir()) == []


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_a_daemon_that_ends_within_a_sequence_leaves_nothing_of_it(
    launch: Callable[..., Any], how: str
) -> None:
    daemon: Daemon = await launch("first")
    await daemon.execute("open('f', 'w').write('x')", session=SESSION)
    full = await after(daemon)
    more = KEY | {"X-Checkpoint-More": "true"}
    assert (await daemon.restore(SESSION, full.body, headers=more)).status == 202
    await getattr(daemon, how)()
    daemon = await launch("first")
    assert (await daemon.execute("pass", session=SESSION)).status == 200
    assert "f" not in await daemon.paths(SESSION)
    assert list((daemon.data_root / "staging").iterdir()) == []
