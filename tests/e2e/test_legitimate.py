"""What shells, node and package managers that mean no harm need, each sent to POST /execute."""

from __future__ import annotations

import pytest

from tests.harmless import failures
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

BASH = {
    "job control": (
        "set -m; sleep 1 & sleep 1 & jobs | wc -l; wait; sleep 9 & kill %%; wait $!; echo $?",
        "2\n143",
    ),
    "a trap at exit": ("trap 'echo bye' EXIT; echo hello", "hello\nbye"),
    "a trap of a signal it sends itself": ("trap 'echo got' TERM; kill $$; echo on", "got\non"),
    "kill 0, to its own group": ("trap 'echo all; exit 0' TERM; sleep 9 & kill 0; wait", "all"),
    "pipes and substitution": (
        "paste <(seq 3) <(seq 4 6) | tr '\\t' - | tee copy | tail -1; wc -l < copy",
        "3-6\n3",
    ),
    "a here document": ("cat <<END\n$((6 * 7))\nEND", "42"),
    "its standard input by name": ("cat /dev/stdin; cat < /dev/fd/0", "typed"),
    "writing to the streams by name": ("echo out > /dev/stdout; echo err > /dev/stderr", "out"),
    "time": ("time true 2>&1; TIMEFORMAT=%R; { time sleep 0.05; } 2>&1 | grep -c ^0", "1"),
    "a coprocess": ("coproc cat; echo through >&${COPROC[1]}; read -u ${COPROC[0]} x; echo $x",
                    "through"),
    "a script of its own with a shebang": (
        "printf '#!/usr/bin/env python3\\nprint(40 + 2)\\n' > s; chmod +x s; ./s",
        "42",
    ),
    "a program compiled elsewhere, run from the workspace": (
        "cp /bin/echo ./mine; ./mine works",
        "works",
    ),
    "a repository": (
        "rm -rf r; git init -q r && cd r && git config user.email a@b && git config user.name n "
        "&& echo x > f && git add f && git commit -qm first && git log --oneline | wc -l "
        "&& git status --short && git gc -q && git clone -q . ../r2 && ls ../r2; rm -rf ../r2",
        "1\nf",
    ),
    "archives": (
        "mkdir -p t; echo x > t/x; tar czf t.tgz t; rm -r t; tar xzf t.tgz; cat t/x", "x",
    ),
    "the disk and the machine": (
        "df -h /mnt/data | wc -l; nproc | grep -c .; id -un; test $(ulimit -n) -ge 1024; echo $?",
        "2\n1\nsandbox\n0",
    ),
    "children that end before it does": ("for i in $(seq 40); do true & done; wait; echo ok", "ok"),
}  # fmt: skip


async def test_bash_has_what_it_needs(runner: Daemon) -> None:
    assert await failures(runner, "bash", BASH) == {}


NODE = {
    "worker threads": (
        """
const { Worker, isMainThread, parentPort, threadId } = require('worker_threads');
const source = "require('worker_threads').parentPort.postMessage(6 * 7)";
const workers = [1, 2, 3].map(() => new Promise((done, failed) => {
  const worker = new Worker(source, { eval: true });
  worker.on('message', done); worker.on('error', failed);
}));
Promise.all(workers).then(all => console.log(all.join(' ')));
""",
        "42 42 42",
    ),
    "a server on the loopback, and fetch": (
        """
const http = require('http');
const server = http.createServer((_, reply) => reply.end('served'));
server.listen(0, '127.0.0.1', async () => {
  const url = `http://127.0.0.1:${server.address().port}/`;
  const got = typeof fetch === 'function' ? await (await fetch(url)).text()
    : await new Promise(done => http.get(url, r => r.on('data', d => done(String(d)))));
  console.log(got);
  server.close(); setTimeout(() => process.exit(0), 10);
});
""",
        "served",
    ),
    "children and files": (
        """
const { execFileSync } = require('child_process');
const fs = require('fs');
fs.writeFileSync('/mnt/data/by-node', 'x');
const user = require('os').userInfo().username;
console.log(String(execFileSync('cat', ['/mnt/data/by-node'])), user,
            require('crypto').randomBytes(4).length);
""",
        "x sandbox 4",
    ),
}


async def test_node_has_what_it_needs(runner: Daemon) -> None:
    assert await failures(runner, "javascript", NODE) == {}
