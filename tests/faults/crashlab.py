"""The laboratory of the crash matrix: daemons that die on a chosen system call, and what is left.

What a session is, is never spelled out here: it is *measured* on daemons that nobody stopped, and
what a killed daemon leaves behind has to be one of those, whole: files, record and behaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import platform
import stat
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.harness import Daemon, Reply
from tests.leftovers import TEST_UID, settled
from tests.pushing import Item, batch
from tests.trap.calls import MACHINE
from tests.trap.trap import KILL, At, Stopped, Trap

#: Of every file whose daemons run under the trap.
MARKS = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(platform.machine() != MACHINE, reason="the trap's tables are x86-64's"),
]
SESSION = "the-session"
#: The same on every disk, so that an archive can be restored into any of them.
KEY = {"X-Sidecar-Key": "K" * 43}
READ_ONLY = Item("store", "read-only", b"of the client's alone\n", read_only=True)
#: Directories of the data root whose calls are counted. `runtime/` is made anew at each start and
#: is written to by the readiness probe at any time: only starts count it (`crash_starts`).
COUNTED = ("", "workspace", "staging", "inputs", "jobs", "bases", "state")
_STATE_FILES = {"session.json", "boot.json", "key"}
_ONE_RUNTIME = """
[[runtime]]
language = "bash"
aliases = []
binary = "/bin/bash"
version = ["/bin/bash", "--version"]
run = ["/bin/bash", "{entry}"]
hello = "echo hello"
"""
#: What the next turn of the conversation would be: it shows what the session takes itself for.
_NEXT_TURN = 'find . -type f | sort | while read -r f; do echo "$f: $(cat "$f")"; done'


def counted(stopped: Stopped) -> bool:
    """Whether it is one of the operation's own calls."""
    return any(path.partition("/")[0] in COUNTED for path in stopped.paths)


@dataclass(frozen=True, slots=True)
class Held:
    """What a disk holds of a session. `files`: path → kind, mode, owner, time, digest."""

    files: Mapping[str, tuple[Any, ...]]
    primed: Mapping[str, Any]
    surfaced: Mapping[str, str]

    def noted_otherwise(self, other: Held, names: Iterable[str]) -> bool:
        """Whether `other` is the same but for what is noted of these files."""
        return self._but_for(names) == other._but_for(names)

    def _but_for(self, names: Iterable[str]) -> Held:
        def kept(noted: Mapping[str, Any]) -> dict[str, Any]:
            return {name: each for name, each in noted.items() if name not in names}

        return replace(self, primed=kept(self.primed), surfaced=kept(self.surfaced))


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the next turn sees and gives."""

    status: int
    error: str | None
    printed: str
    outputs: frozenset[tuple[str, str]]
    skipped: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Seen:
    """A session as it is found at a start."""

    state: str
    dirty: str | None
    held: Held


@contextlib.contextmanager
def laboratory() -> Iterator[Lab]:
    """One on tmpfs, gone afterwards."""
    top = Path(tempfile.mkdtemp(prefix="sandbox-runner-crash-", dir="/dev/shm"))
    try:
        yield Lab(top)
    finally:
        subprocess.run(["rm", "-rf", "--", str(top)], check=False)


class Lab:
    """Daemons with a data root below `top`, which is on tmpfs."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.began_ns = time.time_ns()
        runtimes = top / "runtimes.toml"
        runtimes.write_text(_ONE_RUNTIME)
        self.environ = {
            "RUNNER_RUNTIMES": str(runtimes),
            "RUNNER_SPARE_JAILS": "0",
            "RUNNER_SESSION_UID": str(TEST_UID),
            # A disk's worth of reserve costs a few calls at each start, whatever its size.
            "RUNNER_DISK_RESERVE": "64KiB",
        }

    def daemon(self, root: Path, trap: Trap | None = None, **environ: str) -> Daemon:
        """One that has not been started."""
        return Daemon(root, self.environ | environ, wrapper=trap.wrapper if trap else ())

    # What is there

    def look_at_disk(self, root: Path) -> Held:
        """Files and record. Read while nothing is being done to them."""
        record = record_of(root)
        return Held(self._files(root / "workspace"), record["primed"], record["surfaced"])

    def _files(self, top: Path) -> dict[str, tuple[Any, ...]]:
        found = {}
        for above, directories, files in os.walk(top):
            for name in [*directories, *files]:
                path = Path(above, name)
                status = path.lstat()
                body = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
                # An archive's times are its own; those of what is made now are not compared.
                old = status.st_mtime_ns if status.st_mtime_ns < self.began_ns else None
                owner = (status.st_uid - TEST_UID) if status.st_uid else "root"
                digest = hashlib.sha256(body).hexdigest()[:12]
                found[str(path.relative_to(top))] = (oct(status.st_mode), owner, old, digest)
        return found

    async def look(self, daemon: Daemon) -> Seen:
        """The session as a daemon that has just started has found it."""
        session = (await daemon.get("/health")).json["session"]
        return Seen(session["state"], session["dirty"], self.look_at_disk(daemon.data_root))


def record_of(root: Path) -> dict[str, Any]:
    """The session's record, or an empty one."""
    empty: dict[str, Any] = {"session": None, "primed": {}, "surfaced": {}, "dirty": None}
    with contextlib.suppress(FileNotFoundError):
        sealed = (root / "state/session.json").read_bytes()
        return dict(json.loads(sealed.partition(b"\n")[2]))
    return empty


async def next_turn(daemon: Daemon) -> Behaviour:
    """Sends the inputs that the client has had all along, and looks at everything."""
    await push(daemon, READ_ONLY)
    files = [{"name": "in.txt", "content": "first original\n"}, reference(READ_ONLY, "fixed.txt")]
    reply = await daemon.execute(
        _NEXT_TURN, language="bash", session=SESSION, name="turn", files=files
    )
    body = reply.json
    if reply.status != 200:
        return Behaviour(reply.status, body["error"], "", frozenset(), frozenset())
    assert body["run"]["code"] == 0, body["run"]
    return Behaviour(
        200,
        None,
        body["run"]["stdout"],
        frozenset((each["name"], each.get("sha256", "")) for each in body["files"]),
        frozenset((each["name"], each["reason"]) for each in body["skipped"]),
    )


async def noted(daemon: Daemon, reply: Reply) -> Reply:
    """Waits until what `reply` delivered is noted as delivered: a moment after the last byte."""
    assert reply.status == 200, reply.body
    names = {each["name"] for each in reply.json["files"] if "inherited" not in each}
    assert await settled(lambda: names <= set(record_of(daemon.data_root)["surfaced"]), True)
    return reply


async def push(daemon: Daemon, *items: Item) -> Reply:
    """POST /session/inputs."""
    return await daemon.request(
        "POST",
        "/session/inputs",
        data=batch(*items),
        headers={"Content-Type": "application/x-gtar"},
    )


def reference(item: Item, name: str) -> dict[str, str]:
    """An input by reference."""
    return {"id": item.id, "storage_session_id": item.session, "name": name}


# Dying


@dataclass(frozen=True, slots=True)
class Death:
    """Where a daemon was stopped, None if it never came so far; what it had answered by then."""

    at: Stopped | None
    calls: int
    reply: Reply | None


async def die(
    trap: Trap,
    daemon: Daemon,
    number: int,
    operation: Callable[[Daemon], Awaitable[Reply]],
    *,
    counts: Callable[[Stopped], bool] = counted,
) -> Death:
    """Runs the operation until its `number`th call, which does not happen any more."""
    at = At(number, KILL, counts=counts)
    trap.set(at)
    reply = None
    with contextlib.suppress(aiohttp.ClientError, ConnectionError, asyncio.TimeoutError):
        reply = await operation(daemon)
    if at.hit is None:
        # What it still does when it has answered.
        await asyncio.sleep(0.1)
    trap.set(None)
    await daemon.kill()
    return Death(at.hit, len(at.seen), reply)


def assert_clean(daemon: Daemon) -> None:
    """Nothing half-made is left, and nothing that nobody knows of."""
    root = daemon.data_root
    assert os.listdir(root / "staging") == []
    assert os.listdir(root / "jobs") == []
    strange = {name for name in os.listdir(root / "state") if not name.startswith("reserve.")}
    assert strange <= _STATE_FILES, strange
    known = {"workspace", "staging", "inputs", "jobs", "bases", "state", "runtime"}
    assert set(os.listdir(root)) <= known
