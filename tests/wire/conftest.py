"""Daemons as the recorded ones were set up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fileserver import FileServer
from tests.harness import Daemon
from tests.wire.replay import Replayer

MASTER_KEY = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"


@pytest.fixture
def replay() -> Replayer:
    return Replayer()


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    async with FileServer() as running:
        running.put("sessA", "fileA", b"a,b\n1,2\n")
        running.put("sessA", "ro1", b"# SKILL\n", read_only=True)
        yield running


@pytest.fixture
async def recorded(fast_dir: Path, server: FileServer) -> AsyncIterator[Daemon]:
    """With the limits and the file server that the pairs were recorded with."""
    daemon = Daemon(
        fast_dir / "recorded",
        {
            "RUNNER_OUTPUT_LIMIT": "1024",
            "RUNNER_FILE_SERVER_URL": server.url,
            "RUNNER_SIDECAR_KEY": MASTER_KEY,
        },
    )
    async with daemon:
        yield daemon
