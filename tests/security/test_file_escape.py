"""Writing anywhere but in the workspace and the two private tmpfs; set-id bits, devices, cores."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.conftest import SESSION
from tests.leftovers import TEST_UID
from tests.security.conftest import AUTHORITY, Attacker

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_only_three_directories_can_be_written_to(attack: Attacker) -> None:
    code = """
writable = []
for top, names, _ in os.walk('/'):
    if top.startswith('/proc'):
        names.clear()
        continue
    path = os.path.join(top, 'left')
    if refusal(lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY))) == 'ok':
        os.unlink(path)
        writable.append(top)
        names.clear()
print(sorted(writable))
"""
    assert (await attack(code)).told == "['/dev/shm', '/mnt/data', '/tmp']"


async def test_no_file_of_the_system_can_be_changed_by_any_door(attack: Attacker) -> None:
    code = """
import glob
targets = ['/usr/bin/python3', '/usr/bin/env', '/etc/passwd', '/etc/hosts', '/usr/lib', '/etc', '/']
for path in targets:
    print(
        refusal(os.open, path, os.O_WRONLY), refusal(os.truncate, path, 0),
        refusal(os.chmod, path, 0o777), refusal(os.chown, path, os.getuid(), os.getgid()),
        refusal(os.utime, path), refusal(os.rename, path, path + '.new'),
        refusal(os.link, path, '/mnt/data/link'), refusal(os.setxattr, path, 'user.x', b'x'),
        refusal(os.symlink, '/tmp', path + '.link'), refusal(os.mkdir, path + '.dir'),
    )
"""
    answers = set((await attack(code)).told.split())
    assert "ok" not in answers and answers <= {
        "EACCES", "EROFS", "EPERM", "EXDEV", "EISDIR", "EBUSY", "ENOTSUP", "EOPNOTSUPP", "EINVAL",
        "ENOTDIR", "EEXIST",
    }  # fmt: skip


async def test_no_way_out_of_the_workspace_is_left_by_links(attack: Attacker) -> None:
    """The jail resolves a link in the jail; the daemon resolves none."""
    root = attack.daemon.data_root
    code = f"""
os.symlink('{root}/state/key', 'key')
os.symlink('../state', 'state')
os.symlink('/proc/self/root/etc', 'etc')
print(read('key'), refusal(os.listdir, 'state'), 'passwd' in os.listdir('etc'))
"""
    ran = await attack(code)
    assert ran.told == "ENOENT ENOENT True"
    for path in ("key", "state/key", "etc/passwd"):
        reply = await attack.daemon.file(SESSION, path, headers=AUTHORITY)
        assert reply.status == 404, (path, reply.body)


async def test_set_id_files_are_refused_and_would_not_be_honoured(attack: Attacker) -> None:
    code = """
import shutil, subprocess
shutil.copy('/usr/bin/id', 'id')
for where in ('id', '/tmp/id', '/dev/shm/id'):
    if where != 'id':
        shutil.copy('id', where)
    print(refusal(os.chmod, where, 0o4755), refusal(os.chmod, where, 0o2755),
          refusal(os.fchmod, os.open(where, os.O_RDONLY), 0o6755))
print(refusal(os.open, 'new', os.O_CREAT | os.O_WRONLY, 0o4755), refusal(os.mkdir, 'd', 0o2755))
print(refusal(os.mknod, 'node', 0o104755), oct(os.stat('d').st_mode))
"""
    lines = (await attack(code)).lines
    assert lines[:3] == ["EPERM EPERM EPERM"] * 3
    assert lines[3:] == ["EPERM ok", "EPERM 0o40755"]
    workspace = attack.daemon.data_root / "workspace"
    assert not any(
        os.lstat(path).st_mode & (stat.S_ISUID | stat.S_ISGID)
        for path in [workspace, *workspace.rglob("*")]
    )


async def test_a_set_id_program_of_the_hosts_gives_nothing(attack: Attacker) -> None:
    """One planted by root in the workspace: the mount is nosuid, and no_new_privs is set."""
    planted = attack.daemon.data_root / "workspace" / "planted"
    planted.write_bytes(Path("/usr/bin/id").read_bytes())
    os.chown(planted, 0, 0)
    planted.chmod(0o6755)
    code = "import subprocess\nprint(subprocess.check_output(['./planted', '-u'], text=True))"
    try:
        assert (await attack(code)).told == str(TEST_UID)
        found = "print(read('/proc/self/status').partition('NoNewPrivs:')[2].split()[0])"
        assert (await attack(found)).told == "1"
    finally:
        planted.unlink()


async def test_device_nodes_are_refused_and_would_not_open(attack: Attacker) -> None:
    planted = attack.daemon.data_root / "workspace" / "device"
    os.mknod(planted, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    os.chown(planted, TEST_UID, TEST_UID)
    code = """
import stat
print(refusal(os.mknod, 'mem', stat.S_IFCHR | 0o666, os.makedev(1, 1)))
print(refusal(os.mknod, '/tmp/disk', stat.S_IFBLK | 0o666, os.makedev(254, 0)))
print(refusal(os.mknod, 'nothing', stat.S_IFCHR | 0o666, 0))
print(refusal(os.mkfifo, '/tmp/fifo'), refusal(os.open, 'device', os.O_RDONLY))
"""
    try:
        assert (await attack(code)).lines == ["EPERM", "EPERM", "EPERM", "ok EACCES"]
    finally:
        planted.unlink()


async def test_a_crash_leaves_no_core_anywhere(attack: Attacker) -> None:
    code = """
import resource
print(resource.getrlimit(resource.RLIMIT_CORE), flush=True)
os.abort()
"""
    ran = await attack(code)
    assert (ran.kind, ran.stage["signal"]) == ("signaled", "SIGABRT")
    assert ran.lines[0] == "(0, 0)"
    names = os.listdir(attack.daemon.data_root / "workspace")
    assert not [name for name in names if name.startswith("core")]


async def test_ownership_and_protection_of_its_own_files_cannot_be_turned_on_the_daemon(
    attack: Attacker,
) -> None:
    code = """
import fcntl
open('mine', 'w').write('x')
print(refusal(os.chown, 'mine', 0, 0), refusal(os.chown, 'mine', -1, 0))
print(refusal(fcntl.ioctl, os.open('mine', os.O_RDONLY), 0x40086602, b'\\x10' + b'\\0' * 7))
print(refusal(os.setxattr, 'mine', 'trusted.x', b''), refusal(os.setxattr, 'mine',
      'security.capability', b'\\x01\\0\\0\\2' + b'\\xff' * 16))
"""
    lines = (await attack(code)).lines
    assert lines[:2] == ["EPERM EPERM", "EPERM"]
    assert set(lines[2].split()) <= {"EPERM", "EOPNOTSUPP", "ENOTSUP"}
