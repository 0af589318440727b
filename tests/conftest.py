"""Fixtures that start real daemons."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import Daemon


@pytest.fixture
def fast_dir() -> Iterator[Path]:
    """A directory on tmpfs: data roots and trees of many files belong there."""
    path = Path(tempfile.mkdtemp(prefix="sandbox-runner-test-", dir="/dev/shm"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


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
