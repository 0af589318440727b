"""What a program tries to leave behind is gone when its execution is answered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.leftovers import TEST_UID, assert_nothing_left, processes_of, settled
from tests.security.conftest import Attacker, mounts_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Each prints `left` when it has done it.
LEAVES = {
    "a process in a session of its own": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        import time
        time.sleep(60)
    os._exit(0)
print('left')
""",
    "a process that ignores every signal": """
import signal, time
if os.fork() == 0:
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    os.closerange(0, 3)
    time.sleep(60)
print('left')
""",
    "a stopped process": """
import signal
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
print('left')
""",
    "sixty processes": """
import time
for _ in range(60):
    if os.fork() == 0:
        time.sleep(60)
print('left')
""",
    "a process that holds the output open": """
import time
if os.fork() == 0:
    os.setsid()
    time.sleep(60)
print('left')
""",
    "shared memory, a queue and semaphores": """
print('left' if LIBC.shmget(0, 1 << 20, 0o1666) >= 0 and LIBC.semget(0, 9, 0o1666) >= 0
      and LIBC.msgget(0, 0o1666) >= 0 else 'refused')
""",
    "files in every private place": """
for path in ('/tmp/left', '/dev/shm/left'):
    open(path, 'w').write('x' * 100000)
print('left')
""",
    "a timer": """
import signal
signal.setitimer(signal.ITIMER_REAL, 30)
print('left')
""",
    "a listening port": """
import socket
if os.fork() == 0:
    server = socket.create_server(('127.0.0.1', 47112))
    os.closerange(0, 3)
    server.accept()
print('left')
""",
    "a terminal": """
print('left' if refusal(os.openpty) != 'never' else '')
""",
}


@pytest.mark.parametrize("name", LEAVES)
async def test_nothing_is_left(attack: Attacker, name: str) -> None:
    before = host_state()
    ran = await attack(LEAVES[name])
    assert ran.out == "left\n", ran.stage
    assert ran.stage["outcome"]["evidence"]["proven_empty"] is True
    await assert_nothing_left(attack.daemon.data_root)
    assert await settled(lambda: processes_of(TEST_UID), []) == []
    assert mounts_of(attack.daemon) == []
    assert host_state() == before


def host_state() -> dict[str, list[str]]:
    """What a jail could have left of its user's outside: IPC, keys, files."""
    return {
        "ipc": [
            line
            for kind in ("shm", "sem", "msg")
            for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
            if str(TEST_UID) in line.split()
        ],
        "keys": [line for line in Path("/proc/keys").read_text().splitlines() if ".uid" in line
                 and line.split()[5] == str(TEST_UID)],
        "files": [
            entry.path
            for place in ("/tmp", "/dev/shm", "/var/tmp", "/dev/mqueue", "/run")
            if os.path.isdir(place)
            for entry in os.scandir(place)
            if entry.stat(follow_symlinks=False).st_uid == TEST_UID
        ],
    }  # fmt: skip


async def test_a_hostile_tree_in_the_workspace_is_removed_with_its_job(attack: Attacker) -> None:
    code = """
for _ in range(300):
    os.mkdir('d')
    os.chdir('d')
os.chmod('.', 0)
os.chdir('/mnt/data')
os.mkdir('none')
open('none/x', 'w')
os.chmod('none', 0)
os.symlink('/', 'root')
os.mkfifo('fifo')
open('\\udcff\\udcfe', 'w')
open('-rf', 'w')
open('new\\nline', 'w')
print('left')
"""
    ran = await attack(code, session=None)
    assert ran.out == "left\n", ran.stage
    assert os.listdir(attack.daemon.data_root / "jobs") == []
