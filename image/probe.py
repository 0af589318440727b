"""The checks that need a real jail: whether it isolates, and whether each runtime really runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from image.checks import Check, degraded, failed, ok
from image.runtimes import Runtime
from jail.facts import Enforcement, Facts
from jail.host import JailHost
from jail.process import Jail
from jail.profile import Bind, Limits, Network, Profile

#: Generous: under a fork bomb a probe is slow, and slow is not broken.
PROBE_LIMITS = Limits(
    wall_ms=15_000, cpu_ms=15_000, memory_bytes=64 << 20, pids=16, output_bytes=4096
)
#: A compiler and a JIT want more.
RUNTIME_LIMITS = Limits(
    wall_ms=20_000, cpu_ms=20_000, memory_bytes=512 << 20, pids=64, output_bytes=64 << 10
)
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/mnt/data", "LC_ALL": "C.UTF-8"}
WORKSPACE, BUILD = "/mnt/data", "/mnt/build"
_WROTE = b"probe"
#: What is said of everything that takes a jail where none can be had, and what to do about it.
UNTRIED = ("not tried: no jail could be set up", "see the jail check")
#: The probe's own exit codes for a jail that lets through what it must refuse.
_COULD_WRITE_SYSTEM, _COULD_SEE_STATE = 10, 11
_SCRIPT = f"""
if (: > /usr/probe) 2>/dev/null; then exit {_COULD_WRITE_SYSTEM}; fi
if ls -d "$1" >/dev/null 2>&1; then exit {_COULD_SEE_STATE}; fi
printf probe > {WORKSPACE}/probe
"""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a probe works with: a host, a user, and a root-only directory for its scratch ones."""

    host: JailHost
    uid: int
    gid: int
    directory: str

    @contextmanager
    def scratch(self) -> Iterator[str]:
        """An empty directory of the session's user."""
        path = tempfile.mkdtemp(prefix="probe-", dir=self.directory)
        try:
            os.chown(path, self.uid, self.gid)
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def profile(self, argv: tuple[str, ...], limits: Limits, *binds: Bind) -> Profile:
        """A jail of the kind that executions get."""
        return Profile(
            argv=argv,
            cwd=WORKSPACE,
            env=ENV,
            uid=self.uid,
            gid=self.gid,
            limits=limits,
            binds=binds,
            network=Network.NONE,
        )


async def isolation(bench: Bench, hidden: str) -> list[Check]:
    """Runs a jail that writes to its workspace and tries what it must not be able to do.

    `hidden` is a path of the host that no jail may see.
    """
    with bench.scratch() as path:
        argv = ("/bin/sh", "-c", _SCRIPT, "probe", hidden)
        bind = Bind(path, WORKSPACE, writable=True)
        facts = await Jail(bench.host, bench.profile(argv, PROBE_LIMITS, bind)).run()
        written = _look(os.path.join(path, "probe"))
    return _judge(facts, written, uid=bench.uid, promised=bench.host.enforcement)


def _look(path: str) -> tuple[int, bytes] | None:
    """Owner and content of what the probe wrote, as the host sees it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return os.fstat(file.fileno()).st_uid, file.read(len(_WROTE) + 1)


def _judge(
    facts: Facts, written: tuple[int, bytes] | None, *, uid: int, promised: Enforcement
) -> list[Check]:
    """What the probe's jail proves. Pure."""
    code = os.waitstatus_to_exitcode(facts.wait_status) if facts.wait_status is not None else None
    # The first error is the cause, the last one only that there was one.
    errors = [line for line in facts.nsjail_log if line.startswith(("[E]", "[F]"))]
    logged = (errors or facts.nsjail_log or ("nothing",))[0]
    return [
        ok("jail", "ran and left nothing")
        if facts.started and code is not None and facts.proven_empty
        else failed(
            "jail",
            f"could not be set up: {facts.setup_failure or 'it ended early'}",
            f"nsjail says: {logged}",
        ),
        ok("workspace", "the session's user wrote to /mnt/data")
        if written == (uid, _WROTE)
        else failed("workspace", *UNTRIED)
        if not facts.started
        else failed(
            "workspace",
            "the session's user could not write to /mnt/data",
            "see that the data root is not mounted read-only",
        ),
        _isolation(code) if facts.started else failed("isolation", *UNTRIED),
        # Without controllers the runner still works and says `advisory`. What fails is a jail that
        # did not get the limits which this machine can hold.
        ok("limits", f"{facts.enforcement.value}, as read back from a real jail")
        if facts.enforcement is promised
        else failed("limits", "a jail did not get its limits", "see the cgroups check"),
    ]


def _isolation(code: int | None) -> Check:
    if code == 0:
        return ok("isolation", "forbidden paths were refused")
    said = {
        _COULD_WRITE_SYSTEM: "the jail could write to the system",
        _COULD_SEE_STATE: "the jail could see the data root",
    }.get(code if code is not None else -1, "the probe did not get that far")
    return failed("isolation", said, "do not use this machine for untrusted code")


def name_of(each: Runtime) -> str:
    """The name of its check."""
    return f"runtime {each.language} {each.version}"


async def runtime(bench: Bench, each: Runtime) -> Check:
    """Runs a runtime's `hello`, compiling it first where it compiles."""
    name = name_of(each)
    entry = f"hello{each.source_suffix or ''}"
    with bench.scratch() as work, bench.scratch() as build:
        _write(os.path.join(work, entry), each.hello)
        binds = (Bind(work, WORKSPACE, writable=True), Bind(build, BUILD, writable=True))
        path = f"{WORKSPACE}/{entry}"
        commands = [each.run_argv(path, build=BUILD)]
        if each.compile is not None:
            commands.insert(0, each.compile_argv((path,), build=BUILD))
        for argv in commands:
            profile = bench.profile(argv, RUNTIME_LIMITS, *binds)
            facts = await Jail(bench.host, profile).run()
            if facts.wait_status != 0:
                # Degraded only: the other languages are worth having.
                return degraded(name, "does not run", "reinstall it, or take it off the list")
    if facts.stdout.kept.strip() != b"hello":
        return degraded(name, "does not say hello", "see its `hello` in the runtimes file")
    return ok(name, "ran")


def _write(path: str, text: str) -> None:
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
