"""Fixtures that start real daemons."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.contract import check_reply
from tests.harness import Client, Daemon
from tests.leftovers import TEST_UID, assert_nothing_left, cgroups_of

pytest_plugins = ["tests.figures"]

#: Whatever a test is about: no reply may be one that the contract does not have.
Client.check = staticmethod(check_reply)

#: A daemon serves one session for its whole life: tests that share a daemon share it.
SESSION = "the-session"


def _remove(path: Path) -> None:
    """Trees that are deeper than PATH_MAX, too, which shutil.rmtree leaves behind."""
    subprocess.run(["rm", "-rf", "--", str(path)], check=False)


@pytest.fixture
def fast_dir() -> Iterator[Path]:
    """A directory on tmpfs: data roots and trees of many files belong there."""
    path = Path(tempfile.mkdtemp(prefix="sandbox-runner-test-", dir="/dev/shm"))
    try:
        yield path
    finally:
        _remove(path)


@pytest.fixture
async def start(fast_dir: Path) -> AsyncIterator[Callable[..., object]]:
    """Starts daemons: `await start(name, RUNNER_X="y")`; all are stopped at the end."""
    started: list[Daemon] = []

    async def _start(name: str = "root", **environ: str) -> Daemon:
        daemon = Daemon(fast_dir / name, environ)
        started.append(daemon)
        return await daemon.start()

    yield _start
    for daemon in started:
        await daemon.stop()


@pytest.fixture
async def daemon(start: Callable[..., object]) -> Daemon:
    """One daemon with default settings, ready."""
    return await start()  # type: ignore[misc,no-any-return]


@contextlib.asynccontextmanager
async def own_daemon(**environ: str) -> AsyncIterator[Daemon]:
    """One for a fixture of a whole file, with a data root of its own; nothing of it may be left."""
    root = Path(tempfile.mkdtemp(prefix="sandbox-runner-test-", dir="/dev/shm"))
    daemon = Daemon(root / "data", {"RUNNER_SESSION_UID": str(TEST_UID)} | environ)
    try:
        async with daemon:
            yield daemon
            await assert_nothing_left(daemon.data_root)
        assert not cgroups_of(daemon.data_root)
    finally:
        _remove(root)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner() -> AsyncIterator[Daemon]:
    """One daemon for all tests of a file, which belongs to `SESSION`; nothing of it may be left.

    Its tests share its event loop: `pytestmark = pytest.mark.asyncio(loop_scope="module")`.
    """
    async with own_daemon() as daemon:
        await daemon.execute("pass", session=SESSION)
        yield daemon


@pytest_asyncio.fixture(loop_scope="module")
async def launch(fast_dir: Path) -> AsyncIterator[Callable[..., object]]:
    """Like `start`, beside `runner` and on its loop: `await launch("name", RUNNER_X="y")`."""
    launched: dict[str, Daemon] = {}

    async def _launch(name: str = "root", *, ready: bool = True, **environ: str) -> Daemon:
        uid = {"RUNNER_SESSION_UID": str(TEST_UID)}
        launched[name] = Daemon(fast_dir / name, uid | environ)
        return await launched[name].start(ready=ready)

    yield _launch
    for daemon in launched.values():
        await daemon.stop()
        await assert_nothing_left(daemon.data_root)
        assert not cgroups_of(daemon.data_root)
