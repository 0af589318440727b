"""What the daemon, its disk and other jobs know is nowhere to be read in a jail."""

from __future__ import annotations

import base64
import os

import pytest

from tests.conftest import SESSION
from tests.leftovers import TEST_UID, processes_of
from tests.security.conftest import OTHER_SECRET, SECRETS, SIDECAR_KEY, TOKEN, Attacker

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Reads everything that can be read of the whole tree but /usr, and its own environment.
SEARCH = """
import base64, sys
wanted = [base64.b64decode(each) for each in sys.argv[1:]]
files, found = 0, []

def look(path, content):
    global files
    files += 1
    found.extend(f'{path}: {each!r}' for each in wanted if each in content)

for top in ('/proc', '/dev', '/etc', '/tmp', '/mnt', '/usr/local/etc', '/sys', '/run', '/var',
            '/root', '/home', '/opt', '/srv', '/boot'):
    for directory, names, others in os.walk(top):
        if directory == '/proc':
            names[:] = [n for n in names if n not in (str(os.getpid()), 'thread-self', 'self')]
        for name in others:
            path = os.path.join(directory, name)
            if path.endswith(('/kmsg', 'pagemap', '/full', '/zero', 'random', '/tty')):
                continue
            try:
                file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                continue
            try:
                look(path, os.read(file, 1 << 20))
            except OSError:
                pass
            finally:
                os.close(file)
for name in ('environ', 'auxv', 'mountinfo', 'maps'):
    look('own ' + name, open('/proc/self/' + name, 'rb').read())
print(files > 200, found)
"""


async def test_no_secret_of_the_daemon_can_be_read_anywhere(attack: Attacker) -> None:
    wanted = [base64.b64encode(each.encode()).decode() for each in SECRETS]
    assert len(set(SECRETS)) == 4 and {TOKEN, SIDECAR_KEY, OTHER_SECRET} <= set(SECRETS)
    for session in (SESSION, None):
        assert (await attack(SEARCH, session=session, args=wanted)).told == "True []"


async def test_the_search_finds_what_is_there(attack: Attacker) -> None:
    ran = await attack(
        "open('/tmp/held', 'w').write('a' + ' needle')\n" + SEARCH,
        args=[base64.b64encode(b"a needle").decode()],
    )
    assert ran.told == "True [\"/tmp/held: b'a needle'\"]"


async def test_the_daemon_and_nsjail_are_no_processes_of_the_jail(attack: Attacker) -> None:
    daemon = attack.daemon.pid
    code = f"""
print(sorted(int(name) for name in os.listdir('/proc') if name.isdigit()) == [1, os.getpid()])
for name in ('environ', 'mem', 'fd', 'cmdline', 'root', 'ns/mnt', 'maps'):
    print(read('/proc/{daemon}/' + name), refusal(os.kill, {daemon}, 0))
print(os.getppid(), os.getsid(0) == os.getpid())
"""
    lines = (await attack(code)).lines
    assert lines == ["True", *["ENOENT ESRCH"] * 7, "1 True"]


async def test_init_shows_nothing_of_itself_but_its_command_line(attack: Attacker) -> None:
    code = """
for name in ('environ', 'mem', 'maps', 'auxv', 'io', 'stack', 'syscall', 'pagemap', 'exe'):
    print(name, read('/proc/1/' + name)[:20])
print(refusal(os.listdir, '/proc/1/fd'), refusal(os.readlink, '/proc/1/cwd'),
      refusal(os.readlink, '/proc/1/root'), refusal(os.readlink, '/proc/1/ns/mnt'))
print(refusal(os.open, '/proc/1/oom_score_adj', os.O_WRONLY))
"""
    *lines, links, score = (await attack(code)).lines
    assert {line.split()[-1] for line in lines} <= {"EACCES", "EPERM"}, lines
    assert (links, score) == ("EACCES EACCES EACCES EACCES", "EACCES")


async def test_no_descriptor_of_the_daemons_is_inherited(attack: Attacker) -> None:
    code = """
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for number in range(3, most):
    if refusal(os.fstat, number) == 'ok':
        print(number, os.readlink(f'/proc/self/fd/{number}'))
print([os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in range(3)])
"""
    assert (await attack(code)).told == "['pipe', 'pipe', 'pipe']"


async def test_the_state_directory_the_key_and_other_jobs_are_out_of_reach(
    attack: Attacker,
) -> None:
    root = attack.daemon.data_root
    paths = [
        str(root / name)
        for name in ("", "state", "state/key", "state/session.json", "jobs", "staging", "inputs")
    ]
    up = [f"/mnt/data/../{name}" for name in ("state/key", "../state/key")]
    code = f"""
print([read(path) for path in {paths + up}])
os.chdir('..')
os.chdir('..')
print(os.getcwd(), sorted(os.listdir('.')), os.listdir('/mnt'))
print(os.stat('/mnt/data/..').st_dev == os.stat('/').st_dev)
"""
    first, *rest = (await attack(code)).lines
    assert set(first.strip("[]").replace("'", "").split(", ")) == {"ENOENT"}
    assert rest[0].startswith("/ [") and rest[0].endswith("['data']") and rest[1] == "True"
    for name in ("home", "root", "run", "sys", "var", "boot", "srv", "opt"):
        assert f"'{name}'" not in rest[0]


async def test_neither_the_session_nor_a_job_sees_another_jobs_secret(
    attack: Attacker, secret_of_a_stateless_job: str
) -> None:
    secret = secret_of_a_stateless_job
    beside = f"""
import time
held = {secret!r}
for path in ('/mnt/data/own', '/tmp/own', '/dev/shm/own'):
    open(path, 'w').write(held)
print('ready', flush=True)
time.sleep(20)
"""
    given = base64.b64encode(secret.encode()).decode()
    await attack("open('of-the-session', 'w').write('mine')")
    async with attack.beside(beside):
        assert any("main" in line for line in processes_of(TEST_UID))
        assert len(os.listdir(attack.daemon.data_root / "jobs")) == 1
        for session in (SESSION, None):
            assert (await attack(SEARCH, session=session, args=[given])).told == "True []"
        look = "print(sorted(os.listdir('/mnt/data')), os.listdir('/tmp'), os.listdir('/dev/shm'))"
        ran = await attack(look, session=None)
        assert ran.told.startswith("['attack_kit.py', 'main'] ") and ran.told.endswith(" []")
        assert "own" not in ran.told
