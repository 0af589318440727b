"""A process of the session swaps names for links while the daemon primes, collects and saves.

Two flippers: a shell of the session's terminal, as anybody could have one, and a process outside of
every jail that nothing freezes, which is more than a program can be. Each exchanges names with
renameat2, so that there is always one of the two and never none.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import SESSION
from tests.harness import Daemon
from tests.leftovers import TEST_UID
from tests.terminals import attached

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUNDS = 25
SECRET = b"of the host, and not to be read"
#: What is flipped in the workspace: `d` and `f` between one's own and links to what is outside.
FLIP = """
import ctypes, os, sys
outside = sys.argv[1]
libc = ctypes.CDLL(None)
def ready(name, make):
    if not os.path.lexists(name):
        make(name)
ready('d', os.mkdir)
ready('.d', lambda name: os.symlink(outside, name))
ready('e', os.mkdir)
ready('.e', lambda name: os.symlink('../state', name))
ready('f', lambda name: open(name, 'w').close())
ready('.f', lambda name: os.symlink(outside + '/victim', name))
open('flipping', 'w').close()
while True:
    for name in (b'd', b'e', b'f'):
        libc.renameat2(-100, name, -100, b'.' + name, 2)
"""


@pytest.fixture
def outside() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="outside-") as directory:
        path = Path(directory)
        path.chmod(0o777)
        (path / "victim").write_bytes(SECRET)
        (path / "victim").chmod(0o666)
        yield path


def seen(outside: Path) -> list[tuple[str, int, int, bytes]]:
    return [
        (str(path), path.lstat().st_uid, path.lstat().st_ctime_ns, path.read_bytes())
        for path in sorted(outside.rglob("*"))
    ]


@contextlib.asynccontextmanager
async def by_a_terminal(daemon: Daemon, outside: Path) -> AsyncIterator[None]:
    async with attached(daemon, SESSION) as shell:
        await shell.run(
            f"python3 /mnt/data/flip.py {outside} & while ! test -e flipping; do :; done"
        )
        yield


@contextlib.asynccontextmanager
async def by_a_free_process(daemon: Daemon, outside: Path) -> AsyncIterator[None]:
    workspace = daemon.data_root / "workspace"
    with subprocess.Popen(
        ["/usr/bin/python3", "-I", "-c", FLIP, str(outside)],
        cwd=workspace, user=TEST_UID, group=TEST_UID, extra_groups=[],
    ) as flipper:  # fmt: skip
        try:
            async with asyncio.timeout(10):
                while not (workspace / "flipping").exists():
                    await asyncio.sleep(0.01)
            yield
            assert flipper.poll() is None
        finally:
            flipper.kill()


FLIPPERS = {"a terminal": by_a_terminal, "a free process": by_a_free_process}


@pytest.mark.parametrize("who", FLIPPERS)
async def test_priming_and_collecting_stay_in_the_workspace_while_names_flip(
    launch: Callable[..., Any], outside: Path, who: str
) -> None:
    daemon: Daemon = await launch()
    flip = [{"name": "flip.py", "content": FLIP}]
    await daemon.execute("pass", session=SESSION, files=flip)
    before, key = seen(outside), (daemon.data_root / "state/key").read_bytes()
    async with FLIPPERS[who](daemon, outside):
        for number in range(ROUNDS):
            names = ("d/victim", "f", f"d/e/{number}", "e/key", "e/session.json", "f/below")
            files = [{"name": names[number % len(names)], "content": f"input {number}"}]
            # What it makes is collected through names that flip.
            code = f"open('made-{number}', 'w').write('x')"
            reply = await daemon.execute(code, session=SESSION, files=files)
            assert reply.status == 200, reply.body
            assert SECRET not in reply.body and key not in reply.body
            contents = [each.get("content", "") for each in _files(reply.json)]
            assert all("host" not in str(each) for each in contents)
        for path in ("f", "d/victim", "e/key", "e/session.json"):
            looked = await daemon.file(SESSION, path)
            assert SECRET not in looked.body and key not in looked.body
        await daemon.get("/session/files", session=SESSION)
    assert seen(outside) == before
    assert (daemon.data_root / "state/key").read_bytes() == key
    assert json.loads((daemon.data_root / "state/session.json").read_text().partition("\n")[2])


def _files(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in result.get("files", []) if isinstance(each, dict)]


@pytest.mark.parametrize("who", FLIPPERS)
async def test_a_checkpoint_taken_while_names_flip_holds_nothing_from_outside(
    launch: Callable[..., Any], outside: Path, who: str
) -> None:
    daemon: Daemon = await launch()
    flip = [{"name": "flip.py", "content": FLIP}]
    await daemon.execute("pass", session=SESSION, files=flip)
    before = seen(outside)
    saved: list[bytes] = []
    async with FLIPPERS[who](daemon, outside):
        for _ in range(ROUNDS):
            saved.append(await _checkpoint(daemon))
            deleted = await daemon.request("DELETE", "/session/files/d/victim", session=SESSION)
            put = await daemon.request(
                "PUT", "/session/files/d/victim", session=SESSION, data=b"put"
            )
            for reply in (deleted, put):
                assert reply.status in (200, 201, 204) or "error" in reply.json, reply.body
    assert seen(outside) == before
    for archive in saved:
        assert SECRET not in zlib.decompressobj(31).decompress(archive)
    whole = [archive for archive in saved if zlib_ends(archive)]
    # A terminal is frozen while its workspace is saved.
    assert len(whole) == ROUNDS or who == "a free process"
    for archive in whole:
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            names = members.getnames()
        assert all(name.startswith(("session", "runner-sidecar")) for name in names)


async def _checkpoint(daemon: Daemon) -> bytes:
    """What comes of a checkpoint: all of it, or what came before it was cut."""
    came = b""
    headers = {"X-Runtime-Session-Id": SESSION}
    with contextlib.suppress(aiohttp.ClientPayloadError):
        async with daemon.client.get("/session/checkpoint", headers=headers) as response:
            if response.status != 200:
                # Nothing freezes a free process: the tree may be another one at each look.
                refusal = await response.json()
                assert refusal.get("reason") == "unstable", refusal
                return came
            async for chunk in response.content.iter_any():
                came += chunk
    return came


def zlib_ends(archive: bytes) -> bool:
    """Whether the gzip member is whole."""
    reader = zlib.decompressobj(31)
    reader.decompress(archive)
    return reader.eof
