"""On a v2 with controllers: jails below the daemon's own group, and nobody else's process moved.

The kernel's rule: a group that hands controllers to its children holds no process itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jail.hierarchy import DAEMON_LEAF
from tests.jail.conftest import UID

TOP = Path("/sys/fs/cgroup")
pytestmark = pytest.mark.skipif(
    "memory" not in (TOP / "cgroup.controllers").read_text().split()
    if (TOP / "cgroup.controllers").exists()
    else True,
    reason="this machine's cgroup2 has no memory controller to hand down",
)

DAEMON = """
import json, os, sys
open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()))
from jail.host import JailHost
host = JailHost.open(nsjail=None, runtime_dir=sys.argv[2], owner='delegated', uid=1000, gid=1000)
print(json.dumps([
    host.enforcement, host.cgroups.parents.memory, open('/proc/self/cgroup').read().strip()
]))
host.close()
"""


@pytest.fixture
def service() -> Iterator[Path]:
    """A group such as a service manager delegates: with controllers, below the top."""
    (TOP / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    group = TOP / f"service-{UID}"
    group.mkdir()
    yield group
    for path, _, _ in os.walk(group, topdown=False):
        os.rmdir(path)


def open_in(service: Path, runtime_dir: str) -> tuple[str, str, str]:
    result = subprocess.run(
        [sys.executable, "-c", DAEMON, str(service), runtime_dir],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    enforcement, memory, own = json.loads(result.stdout)
    return enforcement, memory, own


def test_the_daemon_makes_room_by_moving_itself_into_a_leaf(
    service: Path, other_runtime_dir: str
) -> None:
    enforcement, memory, own = open_in(service, other_runtime_dir)
    assert enforcement == "enforced"
    assert Path(memory).parent == service
    assert own == f"0::/{service.name}/{DAEMON_LEAF}"
    # And is favoured there over all that runs in the jails' group beside it.
    assert (service / DAEMON_LEAF / "cpu.weight").read_text() == "1000\n"
    assert (service / DAEMON_LEAF / "memory.min").read_text() == f"{64 << 20}\n"


def test_a_stranger_in_the_group_is_left_where_it_is(service: Path, other_runtime_dir: str) -> None:
    # Of nobody's line: its parent has ended.
    stranger = subprocess.run(
        ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (service / "cgroup.procs").write_text(stranger)
    try:
        enforcement, memory, own = open_in(service, other_runtime_dir)
        assert enforcement == "enforced"
        assert Path(memory).parent == TOP
        assert own == f"0::/{service.name}"
        assert (service / "cgroup.procs").read_text().split() == [stranger]
    finally:
        (service / "cgroup.kill").write_text("1")
        while (service / "cgroup.procs").read_text():
            pass
