"""What a jail sees of the machine, and where it can write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jail.facts import Facts
from jail.profile import Bind
from jail.rootfs import mounts, prepare
from tests.jail.conftest import UID, ProfileMaker, Runner


def words(facts: Facts) -> set[str]:
    return set(facts.stdout.kept.decode().split())


async def test_the_root_holds_the_system_and_nothing_else(sh: Runner) -> None:
    facts: Facts = await sh("ls /")
    system = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}
    assert words(facts) - system == {"usr", "etc", "proc", "dev", "tmp", "mnt"}


async def test_dev_holds_the_harmless_devices_and_nothing_else(sh: Runner) -> None:
    facts: Facts = await sh("ls /dev")
    devices = {"null", "zero", "full", "random", "urandom", "tty"}
    assert words(facts) == devices | {"fd", "stdin", "stdout", "stderr", "shm"}
    facts = await sh("echo x > /dev/null && head -c 4 /dev/urandom | wc -c; echo y > /dev/stderr")
    assert facts.stdout.kept.strip() == b"4" and facts.stderr.kept == b"y\n"


async def test_proc_tells_nothing_of_the_host_but_what_programs_need(py: Runner) -> None:
    shown = {
        "cgroups", "cpuinfo", "devices", "filesystems", "loadavg", "meminfo", "mounts", "net",
        "self", "stat", "swaps", "sys", "sysvipc", "thread-self", "uptime", "version", "vmstat",
    }  # fmt: skip
    code = """
import os
for name in os.listdir('/proc'):
    path = '/proc/' + name
    if name.isdigit() or os.path.islink(path):
        continue
    if os.path.isdir(path):
        full = bool(os.listdir(path))
    else:
        try:
            full = bool(open(path, 'rb').read(1))
        except PermissionError:
            full = False
    if full:
        print(name)
"""
    facts: Facts = await py(code)
    assert facts.stdout.kept and words(facts) <= shown


async def test_nothing_of_proc_that_is_not_its_own_can_be_written(sh: Runner) -> None:
    facts: Facts = await sh(
        "find /proc -path '/proc/[0-9]*' -prune -o -path /proc/self -prune -o"
        " -path /proc/thread-self -prune -o -type f -writable -print 2>/dev/null"
    )
    # ns_last_pid lets everyone open it and then asks for a capability.
    assert words(facts) <= {"/proc/sys/kernel/ns_last_pid"}


async def test_only_the_workspace_tmp_and_shm_can_be_written(py: Runner) -> None:
    code = """
import os
for directory, _, _ in os.walk('/'):
    if directory.startswith(('/proc', '/usr/')):
        continue
    try:
        with open(directory + '/.probe', 'w'):
            print(directory)
    except OSError:
        pass
"""
    facts: Facts = await py(code)
    assert words(facts) == {"/mnt/data", "/tmp", "/dev/shm"}


async def test_every_writable_mount_is_nosuid_and_nodev(sh: Runner) -> None:
    facts: Facts = await sh("cat /proc/mounts")
    lines = [line.split() for line in facts.stdout.kept.decode().splitlines()]
    options = {line[1]: set(line[3].split(",")) for line in lines}
    for target, having in options.items():
        if target != "/":
            assert "nosuid" in having, target
        is_device = target.startswith("/dev/") and target != "/dev/shm"
        if "rw" in having and not is_device:
            assert "nodev" in having, target
    assert "ro" in options["/"] and "ro" in options["/usr"] and "ro" in options["/etc"]
    assert "noexec" not in options["/mnt/data"]


async def test_a_user_name_and_a_home_are_there(py: Runner) -> None:
    facts: Facts = await py(
        "import getpass, os, socket; print(getpass.getuser(), os.path.expanduser('~'),"
        " socket.gethostname(), socket.gethostbyname('localhost'))",
        env={"PATH": "/usr/bin"},
    )
    assert facts.stdout.kept.decode().split() == ["sandbox", "/mnt/data", "sandbox", "127.0.0.1"]


async def test_etc_has_no_secret_and_no_name_server(sh: Runner) -> None:
    facts: Facts = await sh("ls /etc; ls /etc/ssl; wc -l < /etc/passwd; cat /etc/resolv.conf")
    found = words(facts)
    assert {"passwd", "group", "hosts", "nsswitch.conf", "3"} <= found
    assert not found & {"shadow", "gshadow", "sudoers", "private", "machine-id"}


@pytest.mark.skipif(
    not os.path.exists("/etc/ssl/certs/ca-certificates.crt"), reason="this host has no CA bundle"
)
async def test_certificate_authorities_are_there(sh: Runner) -> None:
    facts: Facts = await sh("grep -c BEGIN /etc/ssl/certs/ca-certificates.crt")
    assert int(facts.stdout.kept) > 0


async def test_semaphores_of_multiprocessing_work(run: Runner) -> None:
    code = """
import multiprocessing as mp
def work(queue): queue.put(7)
if __name__ == '__main__':
    queue, lock = mp.Queue(), mp.Lock()
    worker = mp.Process(target=work, args=(queue,))
    worker.start(); print(queue.get()); worker.join()
"""
    facts: Facts = await run("/usr/bin/python3", "-c", code)
    assert facts.stdout.kept == b"7\n", facts.stderr.kept


async def test_a_read_only_bind_cannot_be_written(
    sh: Runner, profile: ProfileMaker, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    os.chown(tools, UID, UID)
    (tools / "tool").write_text("#!/bin/sh\necho works\n")
    (tools / "tool").chmod(0o755)
    binds = (*profile("x").binds, Bind(str(tools), "/opt/tools"))
    facts: Facts = await sh("/opt/tools/tool; touch /opt/tools/new || echo refused", binds=binds)
    assert facts.stdout.kept == b"works\nrefused\n"


async def test_a_bind_that_may_not_execute_does_not(
    sh: Runner, profile: ProfileMaker, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    bind = Bind(str(script), "/opt/script", executable=False, is_dir=False)
    facts: Facts = await sh("/opt/script", binds=(*profile("x").binds, bind))
    assert b"Permission denied" in facts.stderr.kept


async def test_each_jail_has_a_tmp_of_its_own(sh: Runner) -> None:
    await sh("echo secret > /tmp/file; echo secret > /dev/shm/file")
    facts: Facts = await sh("ls -A /tmp /dev/shm")
    assert facts.stdout.kept == b"/dev/shm:\n\n/tmp:\n"


def test_preparing_twice_replaces_what_was_there(tmp_path: Path, profile: ProfileMaker) -> None:
    first = prepare(str(tmp_path), uid=UID, gid=UID)
    Path(first.etc, "stale").write_text("x")
    second = prepare(str(tmp_path), uid=65534, gid=65534)
    assert not Path(second.etc, "stale").exists()
    passwd = Path(second.etc, "passwd").read_text()
    assert passwd.count(":65534:65534:") == 1 and passwd.startswith("root:")
    assert mounts(second, profile("x"))[-1].target == "/mnt/data"
