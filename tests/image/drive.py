"""What every place that the image runs in has to do: the same drive for a container and for a VM.

Through the published port, with the token, as a control plane does it. Each step says what came of
it; the first that is not as said ends the proof (`demo.NotAsSaid`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.client import Client, Reply
from tests.e2e.demo import (
    SESSION,
    TURN_1,
    TURN_2,
    Story,
    archive,
    files_are,
    refused,
    restored,
    stdout_is,
    turn_1,
)

#: What an address of the public internet looks like, and a range that nobody in the test uses.
PUBLIC_NETWORK = "93.184.216"
PUBLIC_PORT = 7777
OOM = "x = []\nwhile True:\n    x.append(bytearray(b'x') * (8 << 20))"
FORKS = "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(60)"
HELLO = {
    "python": "print('hello')",
    "bash": "echo hello",
    "javascript": "console.log('hello')",
}
REACH = """
import socket, sys
for name, host, port in {targets!r}:
    try:
        with socket.create_connection((host, port), 5) as connection:
            connection.sendall(b"ping")
            said = connection.recv(4).decode()
    except OSError as error:
        said = "refused"
    print(f"{{name}}: {{said}}")
"""


@dataclass(frozen=True, slots=True)
class Place:
    """What differs between the places."""

    #: An address that answers what it is sent, as seen from inside.
    public: str
    #: Names and addresses that a jail must not reach.
    forbidden: Mapping[str, tuple[str, int]]
    #: Seconds that a thing takes here for each that it takes on a machine of its own.
    slowness: int = 1
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def sealed(self) -> dict[str, str]:
        """The key that the control plane gives with checkpoints and restores."""
        return {"X-Sidecar-Key": self.key}


def ended(kind: str, **wanted: Any) -> Callable[[Reply], str]:
    def check(reply: Reply) -> str:
        assert reply.status == 200
        run = reply.json["run"]
        assert run["outcome"]["kind"] == kind, run
        assert all(run["outcome"]["evidence"].get(k) == v for k, v in wanted.items()), run
        return f"{kind}, peak {run['memory'] >> 20} MiB, {run['wall_time']} ms"

    return check


def enforced(reply: Reply) -> str:
    assert reply.status == 200
    report = reply.json
    assert all(check["ok"] for check in report["checks"])
    assert report["limits"]["memory"] == report["limits"]["pids"] == "enforced"
    degraded = [check["name"] for check in report["checks"] if check["level"] == "degraded"]
    return f"limits enforced; degraded: {', '.join(degraded) or 'nothing'}"


def said(wanted: Mapping[str, str]) -> Callable[[Reply], str]:
    def check(reply: Reply) -> str:
        assert reply.status == 200
        lines = dict(line.split(": ") for line in reply.json["run"]["stdout"].splitlines())
        assert lines == wanted, lines
        return ", ".join(f"{name} {word}" for name, word in lines.items())

    return check


async def tell(runner: Client, place: Place, story: Story) -> bytes:
    """The whole drive; returns the checkpoint of turn 2."""
    story.chapter("Through the published port")
    no_token = {"Authorization": ""}
    await story.step(
        "no token, no answer",
        runner.get("/runtimes", headers=no_token),
        refused(401, "unauthorized"),
    )
    await story.step("health", runner.get("/health", headers=no_token), enforced)
    for language, code in HELLO.items():
        await story.step(
            f"{language} runs", runner.execute(code, language=language), stdout_is("hello")
        )
    good = await _turns(runner, place, story)
    await _limits(runner, place, story)
    await _egress(runner, place, story)
    await _restore(runner, place, story, good)
    return good


async def _turns(runner: Client, place: Place, story: Story) -> bytes:
    story.chapter("A session")
    await story.step(
        "turn 1 computes, writes a table and a picture",
        runner.execute(TURN_1, session=SESSION, name="main.py"),
        turn_1,
    )
    await story.step(
        "turn 2 reads the table back",
        runner.execute(TURN_2, session=SESSION, name="main.py"),
        stdout_is("10 rows, the last square is 100"),
    )
    reply = await story.step(
        "checkpoint", runner.checkpoint(SESSION, headers=place.sealed), archive
    )
    return reply.body


async def _limits(runner: Client, place: Place, story: Story) -> None:
    story.chapter("What it holds against")
    await story.step(
        "a program that takes all the memory it can get",
        runner.execute(OOM, session=SESSION, name="main.py"),
        ended("out_of_memory"),
    )
    await story.step(
        "a fork bomb",
        runner.execute(FORKS, session=SESSION, name="main.py", run_timeout=4000 * place.slowness),
        ended("process_limit"),
    )
    await story.step("health after both", runner.get("/health"), enforced)
    await story.step(
        "and the session goes on",
        runner.execute(TURN_2, session=SESSION, name="main.py"),
        stdout_is("10 rows, the last square is 100"),
    )


async def _egress(runner: Client, place: Place, story: Story) -> None:
    story.chapter("Egress: the public internet and nothing else")
    targets = {"public": (place.public, PUBLIC_PORT), **place.forbidden}
    code = REACH.format(targets=[(name, *address) for name, address in targets.items()])
    wanted = {name: "ping" if name == "public" else "refused" for name in targets}
    await story.step("from inside a jail", runner.execute(code), said(wanted))


async def _restore(runner: Client, place: Place, story: Story, good: bytes) -> None:
    story.chapter("Restore")
    await story.step(
        "a file that the checkpoint does not have",
        runner.execute(
            "open('later', 'w').write('x'); print('ok')", session=SESSION, name="main.py"
        ),
        stdout_is("ok"),
    )
    await story.step("restore", runner.restore(SESSION, good, headers=place.sealed), restored)
    await story.step(
        "the workspace is that of the checkpoint",
        runner.get("/session/files", session=SESSION),
        files_are("main.py", "squares.csv", "squares.png"),
    )
