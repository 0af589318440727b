"""A program shares its UID with init, and still cannot speak in init's name or look into it."""

from __future__ import annotations

import pytest

from jail.facts import Facts
from tests.jail.conftest import Runner

REFUSED = {
    "its descriptors": "import os; print(os.listdir('/proc/1/fd'))",
    "its memory": "open('/proc/1/mem', 'rb').read(1)",
    "its environment": "print(open('/proc/1/environ').read())",
    "its root": "import os; print(os.listdir('/proc/1/root'))",
    "its program": "import os; print(os.readlink('/proc/1/exe'))",
    "a copy of a descriptor": """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
pidfd = os.pidfd_open(1)
for number in range(3, 20):
    copied = libc.syscall(438, pidfd, number, 0)  # pidfd_getfd
    if copied >= 0:
        print('copied', number)
raise PermissionError(ctypes.get_errno())
""",
}


@pytest.mark.parametrize("name", REFUSED)
async def test_init_does_not_show(py: Runner, name: str) -> None:
    facts: Facts = await py(REFUSED[name])
    assert facts.stdout.kept == b"" and b"PermissionError" in facts.stderr.kept


async def test_no_descriptor_but_the_three_is_inherited(py: Runner) -> None:
    code = """
import os, stat
for number in range(0, 4096):
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        continue
    print(number, stat.S_ISFIFO(mode))
"""
    facts: Facts = await py(code)
    assert facts.stdout.kept == b"0 True\n1 True\n2 True\n"


async def test_a_forged_report_on_any_descriptor_changes_nothing(py: Runner) -> None:
    code = """
import os, struct
forged = struct.pack('=4sIqQQQQ', b'SRI1', 4, 0, 1, 0, 0, 0)
for number in range(0, 64):
    try:
        os.write(number, forged)
    except OSError:
        pass
os._exit(9)
"""
    facts: Facts = await py(code)
    assert facts.wait_status == 9 << 8


async def test_jails_do_not_see_each_other_or_the_host(sh: Runner) -> None:
    facts: Facts = await sh("ls /proc | grep -c '^[0-9]'; cat /proc/self/cgroup | head -1")
    count, _, group = facts.stdout.kept.decode().partition("\n")
    # init, the shell, ls and grep; perhaps cat.
    assert int(count) <= 5
    assert "sandbox-runner" not in group


async def test_only_loopback_is_there_and_it_is_up(py: Runner) -> None:
    code = """
import socket
print([name for _, name in socket.if_nameindex()])
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
print('connected')
try:
    socket.create_connection(('192.0.2.1', 80), timeout=1)
except OSError as error:
    print(error.errno)
"""
    facts: Facts = await py(code)
    assert facts.stdout.kept == b"['lo']\nconnected\n101\n"


async def test_the_guest_goes_first_when_memory_is_short(sh: Runner) -> None:
    facts: Facts = await sh("cat /proc/self/oom_score_adj /proc/1/oom_score_adj")
    assert facts.stdout.kept == b"1000\n500\n"


async def test_nothing_of_the_daemon_is_in_the_environment(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAEMON_SECRET", "x")
    facts: Facts = await run("/usr/bin/env", env={"ONE": "1"})
    assert facts.stdout.kept == b"ONE=1\n"


async def test_signals_and_umask_are_those_of_a_fresh_login(sh: Runner) -> None:
    facts: Facts = await sh("umask; grep -E '^Sig(Blk|Ign)' /proc/self/status")
    assert facts.stdout.kept.decode().split() == [
        "0022", "SigBlk:", "0000000000000000", "SigIgn:", "0000000000000000",
    ]  # fmt: skip
