"""Using up what a machine has: each ends in a limit of the jail's own, and the daemon answers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from tests.leftovers import assert_nothing_left
from tests.security.conftest import Attacker

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20


@dataclass(frozen=True)
class Greedy:
    """`out`: what it must have printed when it ended by itself."""

    code: str
    kind: str = "exited"
    out: str | None = None
    limits: dict[str, int] = field(default_factory=dict)


SMALL = {"run_memory_limit": 96 * MIB}
FILL = """
path = {where!r}
try:
    with open(path + '/full', 'wb', buffering=0) as file:
        while file.write(b'x' * (1 << 20)):
            pass
except OSError as error:
    print(errno.errorcode[error.errno], os.stat(path + '/full').st_size > 250 << 20)
"""
GREEDY = {
    "processes": Greedy(
        """
import time
children = 0
try:
    while children < 10000:
        if os.fork() == 0:
            time.sleep(60)
        children += 1
except BlockingIOError:
    print(0 < children < 64)
""",
        out="True\n",
    ),
    "processes, and fails of it": Greedy(
        "import time\nwhile True:\n    if os.fork() == 0: time.sleep(60)", kind="process_limit"
    ),
    "threads": Greedy(
        """
import time
try:
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
except RuntimeError:
    print(threading.active_count() <= 65, flush=True)
    os._exit(0)
""",
        out="True\n",
    ),
    "descriptors": Greedy(
        """
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError as error:
    print(errno.errorcode[error.errno], len(held) + 3)
""",
        out="EMFILE 1024\n",
    ),
    "memory": Greedy(
        "held = []\nwhile True: held.append(bytearray(b'x') * (4 << 20))",
        kind="out_of_memory",
        limits=SMALL,
    ),
    "memory of files in memory": Greedy(
        "file = os.memfd_create('x')\nwhile True: os.write(file, b'x' * (1 << 20))",
        kind="out_of_memory",
        limits=SMALL,
    ),
    "memory of shared segments": Greedy(
        """
LIBC.shmat.restype = ctypes.c_void_p
while True:
    segment = LIBC.shmget(0, 8 << 20, 0o1600)
    ctypes.memset(LIBC.shmat(segment, None, 0), 1, 8 << 20)
""",
        kind="out_of_memory",
        limits=SMALL,
    ),
    "memory of pipes": Greedy(
        """
import fcntl
held = []
try:
    while True:
        r, w = os.pipe()
        held.append((r, w))
        os.set_blocking(w, False)
        os.write(w, b'x' * 65536)
except OSError as error:
    print(errno.errorcode[error.errno])
""",
        out="EMFILE\n",
    ),
    "memory of sockets": Greedy(
        """
import socket
held = []
try:
    while True:
        one, two = socket.socketpair()
        held.append((one, two))
        one.setblocking(False)
        try:
            while True:
                one.send(b'x' * 65536)
        except BlockingIOError:
            pass
except OSError as error:
    print(errno.errorcode[error.errno])
""",
        kind="out_of_memory",
        limits=SMALL,
    ),
    "memory of page tables": Greedy(
        """
import mmap
# MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
area = mmap.mmap(-1, 1 << 40, flags=0x4022)
at = 0
while True:
    area[at]
    at += 2 << 20
""",
        kind="out_of_memory",
        limits=SMALL,
    ),
    "/tmp": Greedy(FILL.format(where="/tmp"), out="ENOSPC True\n"),
    "/dev/shm": Greedy(FILL.format(where="/dev/shm"), out="ENOSPC True\n"),
    "/tmp, with less memory": Greedy(FILL.format(where="/tmp"), kind="out_of_memory", limits=SMALL),
    "inodes of /tmp": Greedy(
        """
made = 0
try:
    while True:
        os.mknod(f'/tmp/{made}')
        made += 1
except OSError as error:
    print(errno.errorcode[error.errno], made <= 65536)
""",
        out="ENOSPC True\n",
    ),
    "one file": Greedy(
        """
import signal
file = os.open('large', os.O_CREAT | os.O_WRONLY)
os.ftruncate(file, 1 << 30)
os.lseek(file, 0, os.SEEK_END)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.write(file, b'x')
""",
        kind="file_too_large",
    ),
    "a sparse terabyte": Greedy(
        "print(refusal(os.truncate, os.open('sparse', os.O_CREAT | os.O_WRONLY), 1 << 40))",
        out="EFBIG\n",
    ),
    "locked memory": Greedy(
        """
import mmap, resource
print(resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] <= 8 << 20)
area = mmap.mmap(-1, 64 << 20)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(area)))
print(LIBC.mlock(address, ctypes.c_size_t(64 << 20)), errno.errorcode[ctypes.get_errno()])
""",
        out="True\n-1 ENOMEM\n",
    ),
    "an argument of megabytes": Greedy(
        "print(refusal(os.execv, '/bin/true', ['x', 'x' * (4 << 20)]))", out="E2BIG\n"
    ),
    "the CPU": Greedy(
        "while True: pass", kind="cpu_exhausted", limits={"run_cpu_time": 200, "run_timeout": 5000}
    ),
    "the CPU, on every core": Greedy(
        "os.fork()\nos.fork()\nwhile True: pass",
        kind="cpu_exhausted",
        limits={"run_cpu_time": 300, "run_timeout": 5000},
    ),
}


@pytest.mark.parametrize("name", GREEDY)
async def test_each_resource_ends_in_a_limit_of_the_jail(attack: Attacker, name: str) -> None:
    greedy = GREEDY[name]
    begun = time.monotonic()
    ran = await attack(greedy.code, session=None, **({"run_timeout": 10_000} | greedy.limits))
    assert ran.kind == greedy.kind, ran.stage
    assert greedy.out is None or ran.out == greedy.out, ran.stage
    assert ran.stage["outcome"]["evidence"]["proven_empty"] is True
    assert time.monotonic() - begun < 10
    assert (await attack.daemon.get("/health")).status == 200
    await assert_nothing_left(attack.daemon.data_root)


async def test_no_limit_can_be_raised(attack: Attacker) -> None:
    code = """
import resource
raised = []
for name in dir(resource):
    if not name.startswith('RLIMIT_'):
        continue
    number = getattr(resource, name)
    soft, hard = resource.getrlimit(number)
    for target in (os.getpid(), 1):
        for wanted in ({hard + 1, resource.RLIM_INFINITY} if hard >= 0 else set()):
            try:
                resource.prlimit(target, number, (soft, wanted))
                raised.append((name, target))
            except (OSError, ValueError):
                pass
print(raised)
print([resource.getrlimit(getattr(resource, n))[1] for n in
       ('RLIMIT_CORE', 'RLIMIT_NOFILE', 'RLIMIT_FSIZE', 'RLIMIT_RTPRIO', 'RLIMIT_NICE')])
print(refusal(resource.prlimit, 1, resource.RLIMIT_NOFILE, (0, 0)))
"""
    lines = (await attack(code)).lines
    assert lines == ["[]", f"[0, 1024, {1 << 30}, 0, 0]", "EPERM"]


async def test_no_priority_over_the_daemon_can_be_had(attack: Attacker) -> None:
    code = """
def scheduler(policy):
    return refusal(os.sched_setscheduler, 0, policy, os.sched_param(1))
print(scheduler(os.SCHED_FIFO), scheduler(os.SCHED_RR))
print(refusal(os.setpriority, os.PRIO_PROCESS, 0, -1), os.getpriority(os.PRIO_PROCESS, 0))
number = 30 if ON_ARM else 251  # ioprio_set: class real time
print(LIBC.syscall(number, 1, 0, 1 << 13), errno.errorcode[ctypes.get_errno()])
"""
    assert (await attack(code)).lines == ["EPERM EPERM", "EACCES 0", "-1 EPERM"]
