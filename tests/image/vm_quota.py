"""A workspace's limit where the kernel holds it: the daemon finds ext4's quota feature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.client import Client, Reply
from tests.e2e.demo import SESSION, Story, stdout_is
from tests.image.drive import ended

LIMIT_BYTES = 16 << 20
#: One file for each 4 KiB of the limit.
LIMIT_FILES = LIMIT_BYTES // 4096
FILL = """
written = 0
try:
    with open('big', 'wb', buffering=0) as file:
        while True: written += file.write(bytes(1 << 16))
except OSError as error:
    print(error.errno, written >> 20)
    raise SystemExit(1)
"""
MANY = """
import os
os.unlink('big')
made = 0
try:
    while True:
        os.mknod(f'f-{made}'); made += 1
except OSError as error:
    print(error.errno, made // 100)
    raise SystemExit(1)
"""
CLEAR = "import os; [os.unlink(name) for name in os.listdir() if name[:2] == 'f-']; print('ok')"
EDQUOT = 122


def held(reply: Reply) -> str:
    """/health, which says that the kernel holds the limit."""
    said = reply.json["limits"]["workspace"]
    assert said == "enforced", said
    return f"the workspace's limit is {said}"


def stopped(expected: str) -> Callable[[Reply], str]:
    """A program that was refused more, by the kernel and at the right place."""

    def check(reply: Reply) -> str:
        assert reply.json["run"]["stdout"] == expected, reply.json["run"]
        return f"{ended('storage_full')(reply)}, EDQUOT"

    return check


async def tell(machine: Any, story: Story) -> None:
    """`machine`: one that was started with the limit."""
    story.chapter("A workspace of 16 MiB")
    runner: Client = machine
    await story.step("health", runner.get("/health"), held)
    for name, code, wanted in (
        ("more bytes", FILL, f"{EDQUOT} {(LIMIT_BYTES >> 20) - 1}\n"),
        ("more files", MANY, f"{EDQUOT} {LIMIT_FILES // 100}\n"),
    ):
        run = runner.execute(code, session=SESSION, name="main.py")
        await story.step(name, run, stopped(wanted))
    await story.step(
        "the next one makes room",
        runner.execute(CLEAR, session=SESSION, name="main.py"),
        stdout_is("ok"),
    )
