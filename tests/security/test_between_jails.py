"""Jails of one user beside each other: no socket, memory, queue, signal or key leads across."""

from __future__ import annotations

import asyncio

import pytest

from tests.security.conftest import Attacker

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Leaves something of each kind where another process of the same user would find it, and waits.
HOLDER = """
import mmap, signal, socket, threading, time
held = []
for address in ('\\0abstract-of-a-job', '/tmp/socket', '/dev/shm/socket'):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    held.append(listener)
port = socket.create_server(('127.0.0.1', 47111))
held.append(port)
print(LIBC.shmget(0x5EC7, 4096, 0o1666) >= 0, LIBC.semget(0x5EC7, 1, 0o1666) >= 0,
      LIBC.msgget(0x5EC7, 0o1666) >= 0)
LIBC.mq_open.restype = ctypes.c_int
print(LIBC.mq_open(b'/queue-of-a-job', os.O_CREAT | os.O_RDWR, 0o666, None) >= 0)
open('/dev/shm/sem.of-a-job', 'w').write('x')
open('/tmp/file-of-a-job', 'w').write('x')
print(os.getpid(), 'ready', flush=True)
for signum in (1, 2, 15):
    signal.signal(signum, lambda *_: print('signalled', flush=True))
while True:
    time.sleep(0.05)
"""

LOOK = """
import socket
def reach(family, address):
    return refusal(socket.socket(family).connect, address)
print(reach(socket.AF_UNIX, '\\0abstract-of-a-job'), reach(socket.AF_UNIX, '/tmp/socket'),
      reach(socket.AF_UNIX, '/dev/shm/socket'), reach(socket.AF_INET, ('127.0.0.1', 47111)))
print(LIBC.shmget(0x5EC7, 4096, 0), LIBC.semget(0x5EC7, 1, 0), LIBC.msgget(0x5EC7, 0))
print(LIBC.mq_open(b'/queue-of-a-job', os.O_RDWR), os.listdir('/dev/shm'),
      'file-of-a-job' in os.listdir('/tmp'))
print(len(read('/proc/sysvipc/shm').splitlines()), 'abstract-of-a-job' in read('/proc/net/unix'))
"""


async def test_nothing_that_one_job_holds_is_seen_by_another(attack: Attacker) -> None:
    async with attack.beside(HOLDER):
        for session in (None, "the-session"):
            ran = await attack(LOOK, session=session)
            assert ran.lines == [
                "ECONNREFUSED ENOENT ENOENT ECONNREFUSED",
                "-1 -1 -1",
                "-1 [] False",
                "1 False",
            ]


async def test_a_job_finds_what_it_holds_itself(attack: Attacker) -> None:
    """So that what the test above does not find is not just spelt wrongly."""
    held = HOLDER.partition("for signum")[0]
    lines = (await attack(held + LOOK, session=None)).lines
    assert lines[:2] == ["True True True", "True"]
    assert lines[3] == "ok ok ok ok"
    assert "-1" not in lines[4].split()
    assert not lines[5].startswith("-1") and "sem.of-a-job" in lines[5] and "True" in lines[5]
    assert lines[6] == "2 True"


async def test_no_signal_reaches_another_jail(attack: Attacker) -> None:
    code = """
import signal
print(refusal(os.kill, -1, signal.SIGTERM) in ('ok', 'ESRCH'))
signalled = [pid for pid in range(2, 32768) if pid != os.getpid()
             and refusal(os.kill, pid, signal.SIGTERM) == 'ok']
print(signalled, refusal(os.killpg, os.getpgrp(), 0))
"""
    code = "import signal\nsignal.signal(15, signal.SIG_IGN)\n" + code
    async with attack.beside(HOLDER):
        lines = (await attack(code, session=None)).lines
        assert lines == ["True", "[] ok"]
        # The job beside still runs: `beside` fails when it has ended, and it answers to no one.
        assert (await attack(LOOK, session=None)).stage["code"] == 0


async def test_a_job_beside_would_have_told_of_a_signal(attack: Attacker) -> None:
    code = HOLDER.replace("while True", "os.kill(os.getpid(), 15)\nfor _ in range(3)")
    assert "signalled" in (await attack(code, session=None)).lines


async def test_what_a_job_left_is_gone_for_the_next(attack: Attacker) -> None:
    await attack(HOLDER.partition("for signum")[0], session=None)
    lines = (await attack(LOOK, session=None)).lines
    assert lines[1:3] == ["-1 -1 -1", "-1 [] False"]


async def test_a_tmpfs_of_one_turn_is_not_the_next_ones(attack: Attacker) -> None:
    await attack("open('/tmp/x', 'w'), open('/dev/shm/x', 'w'), open('/mnt/data/x', 'w')")
    look = "print(*(os.path.exists(f'{d}/x') for d in ('/tmp', '/dev/shm', '/mnt/data')))"
    assert (await attack(look)).told == "False False True"


async def test_eight_jobs_at_once_have_eight_workspaces(attack: Attacker) -> None:
    code = """
import sys, time
open('of-' + sys.argv[1], 'w').write(sys.argv[1])
time.sleep(0.4)
print(sorted(n for n in os.listdir('.') if n.startswith('of-')), os.listdir('/mnt'))
"""
    jobs = [attack(code, session=None, args=[str(number)]) for number in range(8)]
    told = [ran.told for ran in await asyncio.gather(*jobs)]
    assert told == [f"['of-{number}'] ['data']" for number in range(8)]
