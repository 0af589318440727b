"""A daemon that dies takes its jails with it, and the next one clears up what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jail.cgroup import group_name
from jail.hierarchy import read_mounted
from jail.host import JailHost
from tests.jail.conftest import UID, processes_of

DAEMON = """
import asyncio, json, sys
from jail.host import JailHost
from jail.process import Jail
from jail.profile import Limits, Profile

async def main():
    owner, runtime_dir, uid, script = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    host = JailHost.open(nsjail=None, runtime_dir=runtime_dir, owner=owner, uid=uid, gid=uid)
    limits = Limits(wall_ms=60000, cpu_ms=60000, memory_bytes=64 << 20, pids=16, output_bytes=1024)
    profile = Profile(argv=('/bin/sh', '-c', script), cwd='/', env={'PATH': '/usr/bin'},
                      uid=uid, gid=uid, limits=limits)
    print(json.dumps(host.cgroups.parents.directories), flush=True)
    await Jail(host, profile, on_started=lambda: print('started', flush=True)).run()

asyncio.run(main())
"""


def start_daemon(
    owner: str, runtime_dir: str, script: str
) -> tuple[subprocess.Popen[str], list[str]]:
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, owner, runtime_dir, str(UID), script],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert daemon.stdout is not None
    parents = json.loads(daemon.stdout.readline())
    assert daemon.stdout.readline() == "started\n"
    return daemon, parents


@pytest.mark.parametrize(
    "script", ["sleep 60", "kill -STOP $$", "setsid sleep 60 & setsid sleep 60 & wait"]
)
def test_a_killed_daemon_takes_its_jail_along(other_runtime_dir: str, script: str) -> None:
    owner = f"killed-{UID}"
    daemon, parents = start_daemon(owner, other_runtime_dir, script)
    try:
        assert processes_of(UID) != []
    finally:
        daemon.kill()
        daemon.wait()
    # The parent-death signal is sent as the daemon dies; the namespace takes a moment.
    assert processes_of(UID) == []
    left = [entry.name for path in parents for entry in os.scandir(path) if entry.is_dir()]
    assert left != []
    JailHost.open(nsjail=None, runtime_dir=other_runtime_dir, owner=owner, uid=UID, gid=UID).close()
    assert not any(os.path.exists(path) for path in parents)
    daemon.stdout.close()  # type: ignore[union-attr]


def test_what_a_dead_daemon_left_running_is_ended_by_the_next(other_runtime_dir: str) -> None:
    owner = f"left-{UID}"
    host = JailHost.open(nsjail=None, runtime_dir=other_runtime_dir, owner=owner, uid=UID, gid=UID)
    group = host.cgroups.create(None)
    # A process that no parent-death signal reaches, in a group of its owner's.
    survivor = subprocess.Popen(["sleep", "60"], start_new_session=True)
    for directory in group.directories:
        Path(directory, "cgroup.procs").write_text(str(survivor.pid))
    again = JailHost.open(nsjail=None, runtime_dir=other_runtime_dir, owner=owner, uid=UID, gid=UID)
    assert survivor.wait(timeout=1) == -signal.SIGKILL
    assert not any(os.path.exists(path) for path in group.directories)
    again.close()


def test_two_owners_leave_each_other_alone(other_runtime_dir: str) -> None:
    daemon, _ = start_daemon(f"one-{UID}", other_runtime_dir + "/one", "sleep 60")
    try:
        other = JailHost.open(
            nsjail=None,
            runtime_dir=other_runtime_dir + "/two",
            owner=f"two-{UID}",
            uid=UID,
            gid=UID,
        )
        other.close()
        time.sleep(0.05)
        assert any("sleep" in command for command in processes_of(UID))
    finally:
        daemon.kill()
        daemon.communicate()
    JailHost.open(
        nsjail=None, runtime_dir=other_runtime_dir, owner=f"one-{UID}", uid=UID, gid=UID
    ).close()
    name = group_name(f"one-{UID}")
    assert not any(os.path.exists(os.path.join(m.own_group, name)) for m in read_mounted())
