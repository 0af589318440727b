"""Attacks are programs sent to POST /execute of one real daemon that has something to lose."""

from __future__ import annotations

import base64
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import SESSION
from tests.events import streamed
from tests.harness import Daemon
from tests.leftovers import TEST_UID, assert_nothing_left, cgroups_of

#: What must never be seen in a jail. Long enough not to be there by chance.
TOKEN = "token-of-the-control-plane-7f3a"
SIDECAR_KEY = base64.urlsafe_b64encode(b"sidecar-key-of-the-deployment-32").decode()
OTHER_SECRET = "another-secret-in-its-environment"
SECRETS = (TOKEN, SIDECAR_KEY, "sidecar-key-of-the-deployment", OTHER_SECRET)
AUTHORITY = {"Authorization": f"Bearer {TOKEN}"}
KIT = Path(__file__).with_name("attack_kit.py").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of an attack: the run stage of its result."""

    stage: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.stage["outcome"]["kind"])

    @property
    def out(self) -> str:
        return str(self.stage["stdout"])

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def told(self) -> str:
        """Its output; it must have come to its end by itself."""
        assert (self.kind, self.stage["code"]) == ("exited", 0), self.stage
        return self.out.strip()


class Attacker:
    """Sends programs to the guarded daemon: in the session, or stateless with `session=None`."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    async def __call__(
        self,
        code: str,
        *,
        language: str = "python",
        session: str | None = SESSION,
        files: list[dict[str, Any]] | None = None,
        **more: Any,
    ) -> Ran:
        """Runs it. A Python program finds the kit imported."""
        given = list(files or [])
        if language == "python":
            code = f"from attack_kit import *\n{code}"
            given.append({"name": "attack_kit.py", "content": KIT})
        reply = await self.daemon.execute(
            code, language=language, session=session, headers=AUTHORITY, files=given, **more
        )
        assert reply.status == 200, reply.body
        return Ran(reply.json["run"])

    @contextlib.asynccontextmanager
    async def beside(self, code: str, *, until: str = "ready") -> AsyncIterator[None]:
        """A stateless job that has printed `until` and goes on while the block runs."""
        files = [
            {"name": "main", "content": f"from attack_kit import *\n{code}"},
            {"name": "attack_kit.py", "content": KIT},
        ]
        async with streamed(
            self.daemon, "", headers=AUTHORITY, language="python", files=files
        ) as stream:
            said = ""
            async for event in stream:
                assert event.name != "result", event.data
                said += event.data["data"] if event.name in ("stdout", "stderr") else ""
                if until in said:
                    break
            yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded() -> AsyncIterator[Daemon]:
    """A daemon with a token, a sidecar key and a secret; nothing may be left of what ran in it."""
    root = Path(tempfile.mkdtemp(prefix="sandbox-runner-test-", dir="/dev/shm"))
    environ = {
        "RUNNER_SESSION_UID": str(TEST_UID),
        "RUNNER_TOKEN": TOKEN,
        "RUNNER_SIDECAR_KEY": SIDECAR_KEY,
        "SECRET_OF_HOST": OTHER_SECRET,
    }
    daemon = Daemon(root / "data", environ)
    try:
        async with daemon:
            yield daemon
            await assert_nothing_left(daemon.data_root)
            assert mounts_of(daemon) == [], "a jail's mount is left in the daemon's namespace"
        assert not cgroups_of(daemon.data_root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attack(guarded: Daemon) -> Attacker:
    """Sends attacks to it."""
    return Attacker(guarded)


def mounts_of(daemon: Daemon) -> list[str]:
    """Mounts that the daemon sees and that have to do with its jails."""
    text = Path(f"/proc/{daemon.pid}/mountinfo").read_text("utf-8")
    return [line for line in text.splitlines() if str(daemon.data_root) in line]


@pytest.fixture
def secret_of_a_stateless_job() -> str:
    """What a job beside keeps in its own files and memory."""
    return "secret-of-a-job-beside-91c2"


Attack = Callable[..., Any]
