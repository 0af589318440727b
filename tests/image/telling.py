"""What both proofs share: a story that is also kept, a bounded command, a free port, a time-out."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import aiohttp

from tests.client import Client
from tests.e2e.demo import NotAsSaid, Story

TRANSCRIPTS = Path(__file__).resolve().parent.parent.parent / "docs/deploy/transcripts"
#: No command of a proof takes longer, a build apart.
COMMAND_TIMEOUT = 120.0
HEALTH_TIMEOUT = 5.0
#: The form of a proof for every commit.
SHORT = os.environ.get("SHORT") == "1"


#: Exit status of a proof that this machine cannot run.
CANNOT_RUN = 77


class CannotRun(Exception):
    """This machine lacks something that the proof takes; the message says what."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    status: int
    out: str
    err: str


async def run(*argv: str, timeout: float = COMMAND_TIMEOUT) -> Ran:
    """Runs it to its end."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), timeout)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise
    assert process.returncode is not None
    return Ran(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


async def must(*argv: str, timeout: float = COMMAND_TIMEOUT) -> str:
    """Runs it; what it printed, if it ended well."""
    ran = await run(*argv, timeout=timeout)
    if ran.status != 0:
        raise NotAsSaid(f"{' '.join(argv[:3])} …: {ran.err.strip()[-1000:]}")
    return ran.out.strip()


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class _Both:
    """Writes to the terminal and to the transcript."""

    def __init__(self, terminal: TextIO, kept: TextIO) -> None:
        self._streams = (terminal, kept)

    def write(self, text: str) -> int:
        for stream in self._streams:
            stream.write(text)
            stream.flush()
        return len(text)

    def flush(self) -> None:
        return

    def isatty(self) -> bool:
        return False


@contextlib.contextmanager
def kept(name: str) -> Iterator[None]:
    """What is printed inside is kept as a transcript, if it ends well and is the whole proof."""
    transcript = io.StringIO()
    with contextlib.redirect_stdout(_Both(sys.stdout, transcript)):  # type: ignore[type-var]
        yield
    if not SHORT:
        TRANSCRIPTS.mkdir(parents=True, exist_ok=True)
        (TRANSCRIPTS / f"{name}.txt").write_text(transcript.getvalue(), "utf-8")


def block(text: str) -> None:
    """Prints what a command said, set in."""
    for line in text.splitlines():
        print(f"      {line}")


async def answers(runner: Client, status: int, *, within: float) -> None:
    """Waits until /health answers with this status, of a probe that has ended."""
    async with asyncio.timeout(within):
        while True:
            with contextlib.suppress(OSError, aiohttp.ClientError, TimeoutError):
                # A port that is forwarded accepts before anybody listens behind it.
                async with asyncio.timeout(HEALTH_TIMEOUT):
                    reply = await runner.get("/health")
                if reply.status == status and reply.json["checked_seconds_ago"] is not None:
                    return
            await asyncio.sleep(0.1)


def claim(holds: bool, what: str) -> None:
    """A thing that is either so or ends the proof."""
    if not holds:
        raise NotAsSaid(what)
    print(f"  ✓ {what}")


def prove(name: str, proof: Callable[[Story], Coroutine[Any, Any, None]], *, limit: float) -> int:
    """Runs a proof within `limit` seconds and keeps its transcript; the exit status."""
    story = Story()

    async def bounded() -> None:
        whole = asyncio.timeout(limit)
        try:
            async with whole:
                await proof(story)
        except TimeoutError as error:
            said = f"not done in {limit:.0f} s" if whole.expired() else "a step took too long"
            raise NotAsSaid(said) from error

    try:
        with kept(name):
            asyncio.run(bounded())
            story.end()
    except CannotRun as error:
        print(f"\nTHE {name.upper()} PROOF CANNOT BE RUN ON THIS MACHINE: {error}")
        return CANNOT_RUN
    except NotAsSaid as error:
        traceback.print_exc()
        print(f"\nNot as said: {error}")
        return 1
    return 0
