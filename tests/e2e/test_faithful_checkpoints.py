"""What programs leave in a workspace works after it has moved to another VM, and after ten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon
from tests.unit.checkpoint.kit import look, members_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = {"X-Sidecar-Key": "K" * 43}
#: What is made → the program that makes it, and one that says `ok` if it still is what it was.
LEFT: dict[str, tuple[str, str]] = {
    "modes and times": (
        """
import os
for mode in (0o000, 0o400, 0o444, 0o640, 0o755, 0o777, 0o1777):
    open(f'f{mode:o}', 'w').write('x'); os.mkdir(f'd{mode:o}')
    for kind in 'fd':
        os.utime(f'{kind}{mode:o}', ns=(0, 1_234_567_890_123_456_789 + mode))
        os.chmod(f'{kind}{mode:o}', mode)
""",
        """
import os
for mode in (0o000, 0o400, 0o444, 0o640, 0o755, 0o777, 0o1777):
    for kind in 'fd':
        s = os.stat(f'{kind}{mode:o}')
        assert (s.st_mode & 0o7777, s.st_mtime_ns) == (mode, 1_234_567_890_123_456_789 + mode), s
""",
    ),
    "empty, zero bytes, sparse": (
        """
import os
os.mkdir('empty'); open('zero', 'w').close()
with open('sparse', 'wb') as f: f.seek(8 << 20); f.write(b'end')
""",
        """
import os
assert os.listdir('empty') == [] and os.path.getsize('zero') == 0
with open('sparse', 'rb') as f: assert f.read() == bytes(8 << 20) + b'end'
""",
    ),
    "links": (
        """
import os
for name, target in (('dangling', 'nowhere'), ('absolute', '/etc/passwd'), ('up', '../..'),
                     ('loop', 'loop'), ('a', 'b'), ('b', 'a'), ('fine', 'file')):
    os.symlink(target, name)
open('file', 'w').write('one'); os.link('file', 'file2'); os.mkdir('sub'); os.link('file', 'sub/f')
os.link('dangling', 'dangling2', follow_symlinks=False)
""",
        """
import os
assert os.readlink('absolute') == '/etc/passwd' and os.readlink('loop') == 'loop'
assert os.readlink('dangling') == os.readlink('dangling2') == 'nowhere'
open('fine', 'a').write(' two')
assert open('sub/f').read() == open('file2').read() == 'one two'
assert os.stat('file').st_nlink == 3
""",
    ),
    "any name": (
        """
import os
for byte in set(range(1, 256)) - {0x2f}:
    os.close(os.open(b'n' + bytes([byte]), os.O_CREAT | os.O_WRONLY))
os.makedirs(b'\\xff\\xfe/\\n')
open(b'n' * 255, 'w').write('long'); open(b'\\xff\\xfe/\\n/ ', 'w').write('odd')
""",
        """
import os
want = {b'n' + bytes([byte]) for byte in set(range(1, 256)) - {0x2f}} | {b'n' * 255, b'\\xff\\xfe'}
assert set(os.listdir(b'.')) == want
assert open(b'\\xff\\xfe/\\n/ ').read() == 'odd'
""",
    ),
    "sqlite with an open write-ahead log": (
        """
import os, sqlite3
db = sqlite3.connect('db'); db.execute('pragma journal_mode=wal'); db.execute('create table t (n)')
db.executemany('insert into t values (?)', [(n,) for n in range(1000)]); db.commit()
db.execute('insert into t values (-1)')
os.stat('db-wal'); os._exit(0)
""",
        """
import sqlite3
db = sqlite3.connect('db')
assert db.execute('pragma integrity_check').fetchone() == ('ok',)
assert db.execute('select count(*), sum(n) from t').fetchone() == (1000, 499500)
""",
    ),
    "sqlite, closed": (
        """
import sqlite3
db = sqlite3.connect('db'); db.execute('pragma journal_mode=wal'); db.execute('create table t (n)')
db.execute('insert into t values (7)'); db.commit(); db.close()
""",
        """
import sqlite3
assert sqlite3.connect('db').execute('select n from t').fetchall() == [(7,)]
""",
    ),
    "a git repository": (
        """
import os, subprocess
who = ('-c', 'user.name=n', '-c', 'user.email=e')
def git(*args): subprocess.run(('git', *who, *args), check=True)
git('init', '-q')
for n in range(30): open(f'{n}.txt', 'w').write(f'{n}\\n' * n)
os.symlink('1.txt', 'link'); os.chmod('2.txt', 0o755)
git('add', '.'); git('commit', '-qm', 'one'); git('gc', '-q')
open('3.txt', 'a').write('more'); git('commit', '-qam', 'two'); git('branch', 'other')
open('4.txt', 'a').write('staged'); git('add', '4.txt')
""",
        """
import subprocess
def git(*args):
    done = subprocess.run(('git', '--no-optional-locks', *args), capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout + done.stderr
assert git('fsck', '--full', '--strict', '--no-progress') == '', git('fsck')
assert git('status', '--porcelain') == 'M  4.txt\\n', git('status')
assert git('log', '--oneline', '--all').count('\\n') == 2
""",
    ),
    "a virtual environment": (
        """
import subprocess, sys, os
subprocess.run((sys.executable, '-m', 'venv', '--without-pip', 'v'), check=True)
import glob
[site] = glob.glob('v/lib/python3*/site-packages')
os.mkdir(f'{site}/pkg'); open(f'{site}/pkg/__init__.py', 'w').write('answer = 42\\n')
open('v/bin/tool', 'w').write(f'#!{os.getcwd()}/v/bin/python\\nimport pkg; print(pkg.answer)\\n')
os.chmod('v/bin/tool', 0o755)
subprocess.run(('v/bin/tool',), check=True)
""",
        """
import subprocess
ran = subprocess.run(('v/bin/tool',), capture_output=True, text=True)
assert ran.stdout == '42\\n', ran
""",
    ),
    "node_modules": (
        """
import os
os.makedirs('node_modules/.bin'); os.makedirs('node_modules/@s/pkg/lib')
def write(name, text): open(f'node_modules/@s/pkg/{name}', 'w').write(text)
write('package.json', '{"main": "lib/x.js", "bin": {"x": "cli.js"}}')
write('lib/x.js', 'module.exports = 42')
write('cli.js', '#!/usr/bin/env node\\nconsole.log(require("./lib/x"))')
os.chmod('node_modules/@s/pkg/cli.js', 0o755)
os.symlink('../@s/pkg/cli.js', 'node_modules/.bin/x')
""",
        """
import subprocess
ran = subprocess.run(('node_modules/.bin/x',), capture_output=True, text=True)
assert ran.stdout == '42\\n', ran
ran = subprocess.run(('node', '-p', 'require("@s/pkg")'), capture_output=True, text=True)
assert ran.stdout == '42\\n', ran
""",
    ),
}
#: Left out: nothing that could be brought back to life.
UNMOVED = """
import os, socket
os.mkdir('unmoved'); os.chdir('unmoved')
os.mkfifo('fifo'); os.mkfifo('fifo2')
s = socket.socket(socket.AF_UNIX); s.bind('socket')
"""


async def run(daemon: Daemon, code: str, *, below: str = ".") -> None:
    code = f"import os\nos.makedirs({below!r}, exist_ok=True); os.chdir({below!r})\n{code}"
    reply = await daemon.execute(code, session=SESSION)
    assert reply.json["run"]["code"] == 0, (below, reply.json["run"])


async def moved(source: Daemon, target: Daemon) -> bytes:
    saved = await source.checkpoint(SESSION, headers=KEY)
    assert (saved.status, saved.headers["X-Checkpoint-Kind"]) == (200, "full")
    assert (await target.restore(SESSION, saved.body, headers=KEY)).status == 200
    return saved.body


async def test_what_programs_leave_works_on_another_vm_and_loses_nothing_in_ten_moves(
    launch: Callable[..., Any],
) -> None:
    here: Daemon = await launch("first")
    there: Daemon = await launch("second")
    for number, (make, _) in enumerate(LEFT.values()):
        await run(here, make, below=f"c{number}")
    archives = []
    for _ in range(10):
        before = look(here.data_root / "workspace")
        archives.append(members_of(await moved(here, there)))
        assert look(there.data_root / "workspace") == before
        here, there = there, here
    assert len(set(archives)) == 1
    for number, (_, check) in enumerate(LEFT.values()):
        await run(here, check, below=f"c{number}")


async def test_sockets_and_fifos_are_left_out_and_counted(
    runner: Daemon, launch: Callable[..., Any]
) -> None:
    second: Daemon = await launch("second")
    await run(runner, UNMOVED)
    saved = await runner.checkpoint(SESSION, headers=KEY)
    assert saved.headers["X-Checkpoint-Omitted"] == "3"
    assert (await second.restore(SESSION, saved.body, headers=KEY)).status == 200
    assert list((second.data_root / "workspace/unmoved").iterdir()) == []


async def test_a_turn_that_changes_nothing_keeps_the_tag(runner: Daemon) -> None:
    files = [{"name": "given.txt", "content": "given"}]
    code = "open('given.txt').read(); import os; os.listdir('.'); os.stat('given.txt'); print(1)"
    tags = set()
    for _ in range(3):
        assert (await runner.execute(code, session=SESSION, files=files)).status == 200
        tags.add((await runner.checkpoint(SESSION)).headers["ETag"])
    assert len(tags) == 1


async def test_a_byte_with_size_and_mtime_put_back_is_seen(runner: Daemon) -> None:
    await run(runner, "open('f', 'w').write('one')")
    etag = (await runner.checkpoint(SESSION)).headers["ETag"]
    back = "s = os.stat('f'); open('f', 'r+').write('two'); os.utime('f', ns=(s.st_atime_ns, "
    await run(runner, back + "s.st_mtime_ns)); assert os.stat('f').st_mtime_ns == s.st_mtime_ns")
    # The program's own file is another one too: that it is `f` which is seen, its bytes say.
    reply = await runner.checkpoint(
        SESSION, headers={"If-None-Match": etag, "If-Checkpoint-Base": etag}
    )
    assert (reply.status, reply.headers["X-Checkpoint-Kind"]) == (200, "delta")
    full = await runner.checkpoint(SESSION)
    assert (await runner.restore(SESSION, full.body)).status == 200
    assert (await runner.file(SESSION, "f")).body == b"two"
