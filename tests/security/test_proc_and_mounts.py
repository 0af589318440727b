"""What a jail sees of the machine: /proc, the mounts, the devices, the control groups."""

from __future__ import annotations

import pytest

from tests.security.conftest import Attacker

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Of the kernel's memory, of the host's boot, of other users' keys, of its disks.
MASKED = (
    "cmdline", "config.gz", "consoles", "crypto", "diskstats", "interrupts", "iomem", "ioports",
    "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags",
    "locks", "modules", "mtrr", "pagetypeinfo", "partitions", "sched_debug", "schedstat",
    "slabinfo", "softirqs", "sysrq-trigger", "timer_list", "vmallocinfo", "zoneinfo",
)  # fmt: skip
MASKED_DIRECTORIES = ("acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi", "tty")


async def test_files_of_proc_that_tell_of_the_host_are_empty(attack: Attacker) -> None:
    code = f"""
shown = {{name: read('/proc/' + name, 64) for name in {MASKED}}}
print({{name: text for name, text in shown.items() if text not in ('', 'ENOENT', 'EACCES')}})
below = {{n: os.listdir('/proc/' + n) for n in {MASKED_DIRECTORIES} if os.path.isdir('/proc/' + n)}}
print({{name: each for name, each in below.items() if each}})
"""
    assert (await attack(code)).lines == ["{}", "{}"]


async def test_what_programs_need_of_proc_is_there(attack: Attacker) -> None:
    code = """
wanted = ('cpuinfo', 'meminfo', 'stat', 'uptime', 'loadavg', 'version', 'filesystems',
          'self/maps', 'self/status', 'self/mounts', 'net/dev', 'sys/kernel/pid_max')
print([name for name in wanted if len(read('/proc/' + name)) < 6])
"""
    assert (await attack(code)).told == "[]"


async def test_nothing_in_proc_sys_can_be_written(attack: Attacker) -> None:
    code = """
def write_back(path):
    file = os.open(path, os.O_RDWR)
    try:
        os.write(file, os.read(file, 4096))
    finally:
        os.close(file)

paths = [os.path.join(top, name) for top, _, names in os.walk('/proc/sys') for name in names]
print(len(paths) > 300, [path for path in paths if refusal(write_back, path) == 'ok'])
"""
    assert (await attack(code)).told == "True []"


async def test_its_own_process_entries_cannot_lift_anything(attack: Attacker) -> None:
    code = """
def wrote(name, text):
    def attempt():
        with open('/proc/self/' + name, 'w') as file:
            file.write(text)
    return refusal(attempt)
print(wrote('oom_score_adj', '-1000'), wrote('oom_score_adj', '0'), wrote('oom_score_adj', '1000'))
print(wrote('uid_map', '0 0 1'), wrote('gid_map', '0 0 1'), wrote('setgroups', 'allow'))
"""
    lines = (await attack(code)).lines
    # Back to what the launcher set at most, where the kernel can be told to hold that.
    assert lines[0] in ("EACCES EACCES ok", "EACCES ok ok")
    assert set(lines[1].split()) <= {"EPERM", "EACCES", "EINVAL"}


async def test_the_mounts_name_no_path_of_the_host_but_those_of_its_own_files(
    attack: Attacker,
) -> None:
    """The root of a bind mount is in mountinfo whatever one does: that much a jail can read."""
    ran = await attack("print(read('/proc/self/mountinfo'))")
    root = str(attack.daemon.data_root).removeprefix("/dev/shm")
    below: set[str] = set()
    for line in ran.out.splitlines():
        fields = line.split(" ")
        if len(fields) < 6:
            continue
        source, target, flags = fields[3], fields[4], fields[5].split(",")
        assert "nosuid" in flags or target == "/", line
        assert "nodev" in flags or target == "/" or target.startswith("/dev/"), line
        if "rw" in flags:
            allowed = {"/mnt/data", "/tmp", "/dev/shm", "/proc"}
            assert target in allowed or target.startswith("/dev/"), line
        if root in source:
            below.add(source.removeprefix(root))
    shown = {"/runtime/rootfs/etc", "/runtime/rootfs/empty-dir", "/runtime/rootfs/empty-file"}
    assert below == shown | {"/workspace"}


async def test_no_control_group_is_there_to_be_written(attack: Attacker) -> None:
    code = """
print(os.path.exists('/sys'), ' - cgroup' in read('/proc/self/mountinfo'))
print({line.split(':', 2)[2] for line in read('/proc/self/cgroup').split()})
"""
    assert (await attack(code)).lines == ["False False", "{'/'}"]


async def test_the_only_devices_are_harmless(attack: Attacker) -> None:
    code = """
import stat
print(sorted(n for n in os.listdir('/dev') if stat.S_ISCHR(os.lstat('/dev/' + n).st_mode)))
print([n for n in os.listdir('/dev') if stat.S_ISBLK(os.lstat('/dev/' + n).st_mode)])
print(refusal(os.open, '/dev/tty', os.O_RDWR), refusal(os.open, '/dev/new', os.O_CREAT))
print(refusal(os.unlink, '/dev/null'), refusal(os.chmod, '/dev/null', 0))
print(refusal(os.chown, '/dev/null', os.getuid(), os.getgid()))
"""
    lines = (await attack(code)).lines
    assert lines[:3] == [
        "['full', 'null', 'random', 'tty', 'urandom', 'zero']",
        "[]",
        "ENXIO EROFS",
    ]
    assert set(" ".join(lines[3:]).split()) <= {"EROFS", "EPERM"}


async def test_the_jail_has_a_name_of_its_own_that_it_cannot_change(attack: Attacker) -> None:
    code = """
import socket
print(socket.gethostname(), refusal(socket.sethostname, 'x'), os.uname().nodename)
"""
    assert (await attack(code)).told == "sandbox EPERM sandbox"
