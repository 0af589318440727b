"""Terminating a real daemon, and what must be so afterwards."""

from __future__ import annotations

import asyncio
import os

from tests.harness import Daemon, Reply
from tests.leftovers import TEST_UID, processes_of, settled

#: Leaves a file whose archive no socket's buffer holds.
NOISE = "import os; open('noise', 'wb').write(os.urandom(16 << 20))"


async def terminate(daemon: Daemon) -> Reply:
    return await daemon.request("POST", "/aws/lambda-microvms/runtime/v1/terminate")


async def state(daemon: Daemon) -> str:
    return str((await daemon.get("/health")).json["session"]["state"])


async def until_state(daemon: Daemon, wanted: str) -> None:
    async with asyncio.timeout(10):
        while await state(daemon) != wanted:
            await asyncio.sleep(0.01)


async def assert_ended(daemon: Daemon) -> None:
    """Terminated, wiped, and free for another session."""
    reply = await terminate(daemon)
    assert reply.status == 200, reply.body
    assert await state(daemon) == "terminated"
    assert os.listdir(daemon.data_root / "workspace") == []
    assert await settled(lambda: processes_of(TEST_UID), []) == []
    await serves(daemon, "the-next")


async def serves(daemon: Daemon, session: str) -> None:
    look = await daemon.execute("import os; print(os.listdir('.'))", session=session)
    assert look.json["run"]["stdout"] == "['main']\n"
