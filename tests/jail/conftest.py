"""A real JailHost with a UID of its own, and a check after each test that nothing was left."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jail.facts import Facts
from jail.host import JailHost
from jail.process import Jail
from jail.profile import Bind, Limits, Profile

#: Another run of the tests on this machine uses another one.
UID = 300_000 + os.getpid() % 50_000

LIMITS = Limits(
    wall_ms=5_000, cpu_ms=5_000, memory_bytes=128 << 20, pids=32, output_bytes=256 << 10
)
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/mnt/data"}


@pytest.fixture(scope="session")
def runtime_dir() -> Iterator[str]:
    """On tmpfs, as /run is."""
    with tempfile.TemporaryDirectory(prefix="jail-runtime-", dir="/dev/shm") as directory:
        yield directory


@pytest.fixture(scope="session")
def host(runtime_dir: str) -> Iterator[JailHost]:
    """One host for all tests, as one daemon has."""
    opened = JailHost.open(
        nsjail=None, runtime_dir=runtime_dir, owner=f"tests-{UID}", uid=UID, gid=UID
    )
    yield opened
    opened.close()


@pytest.fixture
def other_runtime_dir(runtime_dir: str) -> str:
    """For a host beside the shared one."""
    return tempfile.mkdtemp(dir=runtime_dir)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A directory that belongs to the session UID, to be bound at /mnt/data."""
    directory = tmp_path / "workspace"
    directory.mkdir()
    os.chown(directory, UID, UID)
    return directory


ProfileMaker = Callable[..., Profile]
Runner = Callable[..., Any]


@pytest.fixture
def profile(workspace: Path) -> ProfileMaker:
    """Makes a profile from a command; keywords are fields of Profile or of Limits."""

    def make(*argv: str, env: Mapping[str, str] | None = None, **changes: Any) -> Profile:
        of_limits = {name: changes.pop(name) for name in list(changes) if hasattr(LIMITS, name)}
        base = Profile(
            argv=argv,
            cwd="/mnt/data",
            env=ENV if env is None else env,
            uid=UID,
            gid=UID,
            limits=replace(LIMITS, **of_limits),
            binds=(Bind(str(workspace), "/mnt/data", writable=True),),
        )
        return replace(base, **changes)

    return make


@pytest.fixture
def run(host: JailHost, profile: ProfileMaker) -> Runner:
    """Runs a command to its facts."""

    async def run_command(*argv: str, **changes: Any) -> Facts:
        return await Jail(host, profile(*argv, **changes)).run()

    return run_command


@pytest.fixture
def sh(run: Runner) -> Runner:
    """Runs a shell script to its facts."""

    async def run_script(script: str, **changes: Any) -> Facts:
        return await run("/bin/sh", "-c", script, **changes)

    return run_script


@pytest.fixture
def py(run: Runner) -> Runner:
    """Runs Python code to its facts."""

    async def run_code(code: str, **changes: Any) -> Facts:
        return await run("/usr/bin/python3", "-I", "-S", "-c", code, **changes)

    return run_code


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """No process, no cgroup, no descriptor and no mount more than before."""
    if "host" not in request.fixturenames:
        yield
        return
    host: JailHost = request.getfixturevalue("host")
    mounts, descriptors = _mounts(), _descriptors()
    yield
    assert processes_of(UID) == []
    assert _mounts() == mounts
    for parent in host.cgroups.parents.directories:
        assert [entry.name for entry in os.scandir(parent) if entry.is_dir()] == []
    assert settled(_descriptors, descriptors) == descriptors
    assert not host.running


def processes_of(uid: int) -> list[str]:
    """The command lines of the live processes of a UID; a moment's grace for those that end."""

    def look() -> list[str]:
        found = []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    status = Path(entry.path, "status").read_text()
                    if f"\nUid:\t{uid}\t" in status and "\nState:\tZ" not in status:
                        found.append(Path(entry.path, "cmdline").read_text())
                except OSError:
                    continue
        return found

    return settled(look, [])


def settled(look: Callable[[], Any], wanted: Any) -> Any:
    """What `look` sees, once it is what is wanted or half a second has gone."""
    ends = time.monotonic() + 0.5
    while (seen := look()) != wanted and time.monotonic() < ends:
        time.sleep(0.01)
    return seen


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _mounts() -> list[str]:
    """Those of ours and of nsjail's; other tests of this machine make their own."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if "nsjail" in line or "jail-runtime-" in line]
