"""What Python programs that mean no harm need of a sandbox, each sent to POST /execute."""

from __future__ import annotations

import pytest

from tests.harmless import failures
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

PYTHON = {
    "a pool of processes": (
        """
import multiprocessing
if __name__ == '__main__':
    with multiprocessing.Pool(4) as pool:
        print(sum(pool.map(abs, range(-10, 10))))
""",
        "100",
    ),
    "semaphores, queues, shared memory and a manager": (
        """
import multiprocessing as mp
from multiprocessing import shared_memory
def work(queue, semaphore, lock, value, name):
    with semaphore, lock:
        value.value += 1
    block = shared_memory.SharedMemory(name=name)
    block.buf[0] = 7
    block.close()
    queue.put('done')
if __name__ == '__main__':
    queue, semaphore, lock = mp.Queue(), mp.Semaphore(2), mp.Lock()
    value, barrier, event = mp.Value('i', 0), mp.Barrier(1), mp.Event()
    block = shared_memory.SharedMemory(create=True, size=16)
    workers = [mp.Process(target=work, args=(queue, semaphore, lock, value, block.name))
               for _ in range(3)]
    for each in workers: each.start()
    print([queue.get() for _ in workers], end=' ')
    for each in workers: each.join()
    print(value.value, block.buf[0])
    block.close(); block.unlink()
    with mp.Manager() as manager:
        assert list(manager.list([1])) == [1]
""",
        "['done', 'done', 'done'] 3 7",
    ),
    "spawned and served processes": (
        """
import multiprocessing as mp
def work(n): return n * n
if __name__ == '__main__':
    for method in ('spawn', 'forkserver'):
        with mp.get_context(method).Pool(2) as pool:
            print(pool.map(work, [1, 2, 3]), end=' ')
""",
        "[1, 4, 9] [1, 4, 9]",
    ),
    "futures, in threads and in processes": (
        """
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
if __name__ == '__main__':
    for kind in (ThreadPoolExecutor, ProcessPoolExecutor):
        with kind(4) as pool:
            print(sum(pool.map(abs, range(-5, 5))), end=' ')
""",
        "25 25",
    ),
    "who and where one is": (
        """
import getpass, os, pathlib, platform, pwd, grp, socket, tempfile
print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_dir, grp.getgrgid(os.getgid()).gr_name,
      pathlib.Path.home(), os.path.expanduser('~'), tempfile.gettempdir(), socket.gethostname(),
      socket.gethostbyname('localhost'), platform.system())
""",
        "sandbox /mnt/data sandbox /mnt/data /mnt/data /tmp sandbox 127.0.0.1 Linux",
    ),
    "a TLS context with the system's authorities": (
        """
import ssl
context = ssl.create_default_context()
print(len(context.get_ca_certs()) > 50, context.verify_mode == ssl.CERT_REQUIRED)
import hashlib, secrets, uuid
assert len(secrets.token_bytes(32)) == 32 and uuid.uuid4() and hashlib.scrypt(b'x', salt=b'y', n=2,
    r=8, p=1)
""",
        "True True",
    ),
    "temporary files and directories": (
        """
import tempfile
with tempfile.NamedTemporaryFile() as named, tempfile.TemporaryFile() as unnamed:
    named.write(b'x'); unnamed.write(b'y')
with tempfile.TemporaryDirectory() as directory, tempfile.SpooledTemporaryFile() as spooled:
    print(directory.startswith('/tmp/'))
""",
        "True",
    ),
    "subprocesses": (
        """
import subprocess
print(subprocess.run(['sh', '-c', 'cat; exit 3'], input=b'in', capture_output=True).stdout.decode(),
      subprocess.run('exit 4', shell=True).returncode,
      subprocess.check_output(['python3', '-c', 'print(5)'], text=True, timeout=20).strip())
""",
        "in 4 5",
    ),
    "subprocesses of asyncio": (
        """
import asyncio, sys
async def main():
    process = await asyncio.create_subprocess_exec(
        sys.executable, '-c', 'print(input())', stdin=-1, stdout=-1)
    out, _ = await process.communicate(b'through asyncio')
    server = await asyncio.start_server(lambda r, w: (w.write(b'served'), w.close()), '127.0.0.1')
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    print(out.decode().strip(), process.returncode, (await reader.read()).decode())
asyncio.run(main())
""",
        "through asyncio 0 served",
    ),
    "thirty threads": (
        """
import threading
done = []
threads = [threading.Thread(target=done.append, args=(n,)) for n in range(30)]
for each in threads: each.start()
for each in threads: each.join()
print(sorted(done) == list(range(30)))
""",
        "True",
    ),
    "a database with a write-ahead log": (
        """
import sqlite3
connection = sqlite3.connect('/mnt/data/base.db')
print(connection.execute('pragma journal_mode=wal').fetchone()[0], end=' ')
connection.execute('create table if not exists t (x)')
connection.executemany('insert into t values (?)', [(n,) for n in range(1000)])
connection.commit()
other = sqlite3.connect('/mnt/data/base.db')
print(other.execute('select count(*) from t').fetchone()[0] % 1000)
""",
        "wal 0",
    ),
    "a mapped file": (
        """
import mmap
with open('/mnt/data/mapped', 'wb+') as file:
    file.truncate(1 << 20)
    with mmap.mmap(file.fileno(), 0) as area:
        area[4096:4101] = b'hello'
        area.flush()
print(open('/mnt/data/mapped', 'rb').read()[4096:4101].decode())
""",
        "hello",
    ),
    "text in UTF-8": (
        """
import locale, sys
print(locale.setlocale(locale.LC_ALL, ''), sys.getfilesystemencoding(), sys.stdout.encoding,
      locale.getpreferredencoding(), 'grüß 日本 🎉')
""",
        "C.UTF-8 utf-8 utf-8 UTF-8 grüß 日本 🎉",
    ),
    "names of files in any script": (
        """
import os
names = ['ünïcödé.txt', '日本語', 'with space', '🎉', "quote'and\\"", '-dash', 'a' * 200]
os.makedirs('names', exist_ok=True)
for name in names: open('names/' + name, 'w').write(name)
print(sorted(os.listdir('names')) == sorted(names))
""",
        "True",
    ),
    "a handler at exit, and an exit code": (
        """
import atexit, os, signal, sys
atexit.register(lambda: print('at exit'))
signal.signal(signal.SIGUSR1, lambda *_: print('signalled', end=' '))
os.kill(os.getpid(), signal.SIGUSR1)
sys.exit(0)
""",
        "signalled at exit",
    ),
    "time, its zone and its sleeping": (
        """
import time, datetime, zoneinfo
begun = time.monotonic()
time.sleep(0.05)
print(0.05 <= time.monotonic() - begun < 2, time.time() > 1.7e9, time.process_time() > 0,
      datetime.datetime.now().astimezone().utcoffset() is not None)
""",
        "True True True True",
    ),
    "a server on the loopback": (
        """
import http.server, threading, urllib.request
open('/mnt/data/page.html', 'w').write('a page')
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
with urllib.request.urlopen(f'http://localhost:{server.server_port}/page.html') as page:
    print(page.read().decode())
""",
        "a page",
    ),
    "a library loaded with ctypes": (
        """
import ctypes, ctypes.util
print(ctypes.CDLL(None).getpid() > 1, ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)())
""",
        "True 7",
    ),
    "the standard streams by name": (
        """
print(open('/dev/stdin').read().strip(), end=' ', flush=True)
open('/dev/stdout', 'w').write('by name ')
open('/proc/self/fd/1', 'w').write('by number')
""",
        "typed by name by number",
    ),
}


async def test_python_has_what_it_needs(runner: Daemon) -> None:
    assert await failures(runner, "python", PYTHON) == {}
