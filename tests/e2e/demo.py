"""`make demo`: the whole main job on two real runners, step by step, with timings.

Exits non-zero at the first step that is not as said.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness import Daemon, Reply, daemons

SESSION = "demo-session"

TURN_1 = """
import struct, zlib
numbers = [n * n for n in range(1, 11)]
with open("squares.csv", "w") as table:
    table.write("n,square\\n")
    table.writelines(f"{n},{square}\\n" for n, square in enumerate(numbers, 1))

def chunk(kind, data):
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

# A real PNG, drawn without a library: a bar per square.
rows = b"".join(
    b"\\0" + b"".join(b"\\x20" if x // 10 < 10 and numbers[x // 10] > 100 - y else b"\\xff"
                      for x in range(100))
    for y in range(100)
)
with open("squares.png", "wb") as image:
    image.write(b"\\x89PNG\\r\\n\\x1a\\n"
                + chunk(b"IHDR", struct.pack(">IIBBBBB", 100, 100, 8, 0, 0, 0, 0))
                + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
print("sum of squares:", sum(numbers))
"""
TURN_2 = """
import csv
rows = list(csv.DictReader(open("squares.csv")))
print(len(rows), "rows, the last square is", rows[-1]["square"])
"""
TURN_3 = """
import os
print(sorted(os.listdir(".")), open("squares.png", "rb").read()[1:4])
"""
FORGE = """
import json
forged = {"marker": "runner.sidecar.v1", "session": "somebody-else", "primed": {}, "surfaced": {}}
json.dump(forged, open("runner-sidecar.json", "w"))
print("forged")
"""


class NotAsSaid(Exception):
    """A step did something else than the demo says."""


class Story:
    """Prints each step with its time, and checks it."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def chapter(self, text: str) -> None:
        print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}")

    async def step(self, text: str, reply: Any, check: Callable[[Reply], str]) -> Reply:
        """Awaits `reply` and prints what `check` makes of it; `check` raises if it is not right."""
        began = time.monotonic()
        got: Reply = await reply
        spent = (time.monotonic() - began) * 1000
        try:
            said = check(got)
        except (AssertionError, KeyError, IndexError, ValueError) as error:
            print(f"  ✗ {text}\n      {got.status} {got.body[:600]!r}")
            raise NotAsSaid(text) from error
        print(f"  ✓ {text:58} {spent:8.1f} ms   {said}")
        return got

    def end(self) -> None:
        print(f"\nAll of it as said, in {time.monotonic() - self._started:.1f} s.")


def stdout_is(wanted: str) -> Callable[[Reply], str]:
    def check(reply: Reply) -> str:
        assert reply.status == 200
        run = reply.json["run"]
        assert run["outcome"]["kind"] == "exited"
        assert run["stdout"].strip() == wanted, run
        return wanted

    return check


def refused(status: int, code: str) -> Callable[[Reply], str]:
    def check(reply: Reply) -> str:
        assert reply.status == status
        assert reply.json["error"] == code
        return f"{status} {code}"

    return check


def healthy(reply: Reply) -> str:
    assert reply.status == 200
    report = reply.json
    assert all(check["ok"] for check in report["checks"])
    return f"{report['status']}, limits {report['limits']['memory']}"


def turn_1(reply: Reply) -> str:
    assert reply.status == 200
    assert reply.json["run"]["stdout"] == "sum of squares: 385\n"
    returned = [file["name"] for file in reply.json["files"]]
    assert returned == ["squares.csv", "squares.png"]
    return f"sum of squares: 385; returned {', '.join(returned)}"


def archive(reply: Reply) -> str:
    assert reply.status == 200
    assert reply.headers["ETag"]
    return f"{len(reply.body)} bytes, {reply.headers['X-Checkpoint-Entries']} entries"


def restored(reply: Reply) -> str:
    assert reply.status == 200
    assert reply.json["status"] == "restored"
    return f"{reply.json['entries']} entries"


def files_are(*wanted: str) -> Callable[[Reply], str]:
    def check(reply: Reply) -> str:
        assert reply.status == 200
        assert [file["path"] for file in reply.json["files"]] == list(wanted)
        return ", ".join(wanted) or "empty"

    return check


def flipped(good: bytes) -> bytes:
    """The archive with one bit of one byte in its middle changed."""
    middle = len(good) // 2
    return good[:middle] + bytes([good[middle] ^ 0x10]) + good[middle + 1 :]


async def tell(first: Daemon, second: Daemon, story: Story) -> None:
    story.chapter("A session on the first runner")
    await story.step("health", first.get("/health"), healthy)
    await story.step(
        "turn 1 computes, writes a table and a picture",
        first.execute(TURN_1, session=SESSION, name="main.py"),
        turn_1,
    )
    await story.step(
        "turn 2 reads the table back",
        first.execute(TURN_2, session=SESSION, name="main.py"),
        stdout_is("10 rows, the last square is 100"),
    )
    await story.step(
        "the same without the session header sees nothing",
        first.execute("import os; print(os.listdir('.'))", name="main.py"),
        stdout_is("['main.py']"),
    )
    await story.step(
        "a sidecar forged by user code is just a file",
        first.execute(FORGE, session=SESSION, name="main.py"),
        stdout_is("forged"),
    )
    good = await story.step("checkpoint", first.checkpoint(SESSION), archive)

    story.chapter("The VM is lost; a second runner takes the session over")
    await story.step("health", second.get("/health"), healthy)
    await story.step(
        "a flipped byte is refused",
        second.restore(SESSION, flipped(good.body)),
        refused(422, "checkpoint_corrupt"),
    )
    await story.step(
        "and its workspace is empty", second.get("/session/files", session=SESSION), files_are()
    )
    await story.step(
        "the archive as it was is restored", second.restore(SESSION, good.body), restored
    )
    await story.step(
        "turn 3 sees the files of turn 1",
        second.execute(TURN_3, session=SESSION, name="main.py"),
        stdout_is("['main.py', 'runner-sidecar.json', 'squares.csv', 'squares.png'] b'PNG'"),
    )
    await story.step(
        "for another session there is nothing here",
        second.execute("print(1)", session="somebody-else", name="main.py"),
        refused(409, "session_workspace_dirty"),
    )


async def main() -> int:
    story = Story()
    with tempfile.TemporaryDirectory(prefix="sandbox-runner-demo-") as directory:
        # Both get the control plane's key, as two VMs of one deployment do.
        key = secrets.token_urlsafe(32)
        async with daemons(Path(directory), "first", "second", RUNNER_SIDECAR_KEY=key) as two:
            try:
                await tell(two[0], two[1], story)
            except NotAsSaid as error:
                print(f"\nNot as said: {error}")
                return 1
    story.end()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
