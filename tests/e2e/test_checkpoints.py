"""Checkpoint and restore as a control plane uses them."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import tarfile
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = {"X-Sidecar-Key": "K" * 43}
EVERYTHING = """
import os
os.makedirs('d/e'); open('d/e/deep', 'w').write('deep')
open('empty', 'w').close(); os.mkdir('empty-dir')
open('run.sh', 'w').write('#!/bin/sh\\necho ran\\n'); os.chmod('run.sh', 0o755)
open('private', 'w').write('p'); os.chmod('private', 0o600)
os.symlink('d/e/deep', 'link'); os.symlink('/nowhere', 'dangling')
os.link('private', 'second-name')
open('ünïcode 🙂', 'w').write('u'); open(b'not-utf8-\\xff', 'w').write('n')
os.mkfifo('pipe')
os.utime('private', (1_000_000_000, 1_000_000_000))
"""
LOOK = """
import os
for top, dirs, files in sorted(os.walk(b'.')):
    for name in sorted(dirs + files):
        path = os.path.join(top, name)
        s = os.lstat(path)
        links = '' if os.path.isdir(path) else s.st_nlink
        target = os.readlink(path) if os.path.islink(path) else ''
        mtime = int(s.st_mtime) if path == b'./private' else ''
        print(path, oct(s.st_mode), links, s.st_uid == os.getuid(), mtime, target)
"""


async def look(daemon: Daemon) -> list[str]:
    reply = await daemon.execute(LOOK, session=SESSION, name="look.py")
    assert reply.json["run"]["code"] == 0, reply.json["run"]
    lines: list[str] = reply.json["run"]["stdout"].splitlines()
    return lines


async def test_everything_a_program_can_leave_comes_back_on_another_vm(
    launch: Callable[..., Any],
) -> None:
    first: Daemon = await launch("first")
    second: Daemon = await launch("second")
    made = await first.execute(EVERYTHING, session=SESSION, name="make.py")
    assert made.json["run"]["code"] == 0, made.json["run"]
    before = await look(first)
    # A program cannot: it is refused the system call. A boot hook of the image might.
    (first.data_root / "workspace/run.sh").chmod(0o6755)
    saved = await first.checkpoint(SESSION, headers=KEY)
    assert (saved.status, saved.headers["Content-Type"]) == (200, "application/x-gtar")
    assert saved.headers["X-Checkpoint-Omitted"] == "1"
    assert (await second.restore(SESSION, saved.body, headers=KEY)).status == 200
    assert await look(second) == [line for line in before if "pipe" not in line]


async def test_the_same_archive_twice_answers_200_twice(runner: Daemon) -> None:
    await runner.execute("open('kept', 'w').write('x')", session=SESSION)
    archive = (await runner.checkpoint(SESSION)).body
    listing = []
    for _ in range(2):
        reply = await runner.restore(SESSION, archive)
        assert (reply.status, reply.json["status"]) == (200, "restored")
        listing.append((await runner.get("/session/files", session=SESSION)).json)
    assert listing[0] == listing[1] and "kept" in [f["path"] for f in listing[0]["files"]]
    # At once, too: one waits for the other.
    both = await asyncio.gather(runner.restore(SESSION, archive), runner.restore(SESSION, archive))
    assert [reply.status for reply in both] == [200, 200]


async def test_a_restore_replaces_and_does_not_mix(runner: Daemon) -> None:
    await runner.execute("open('kept', 'w').write('old')", session=SESSION)
    archive = (await runner.checkpoint(SESSION)).body
    await runner.execute("open('kept', 'w').write('new'); open('added', 'w')", session=SESSION)
    assert (await runner.restore(SESSION, archive)).status == 200
    assert (await runner.file(SESSION, "kept")).body == b"old"
    assert "added" not in await runner.paths(SESSION)


async def test_an_unchanged_workspace_is_not_sent_again(runner: Daemon) -> None:
    await runner.execute("open('kept', 'w').write('x')", session=SESSION)
    first = await runner.checkpoint(SESSION)
    etag = first.headers["ETag"]
    for tags in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        again = await runner.checkpoint(SESSION, headers={"If-None-Match": tags})
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", etag)
    other = await runner.checkpoint(SESSION, headers={"If-None-Match": '"other"'})
    assert (other.status, other.headers["ETag"]) == (200, etag)


async def test_every_change_gives_another_name_to_the_state(runner: Daemon) -> None:
    await runner.execute("open('f', 'w').write('one')", session=SESSION)
    seen = [(await runner.checkpoint(SESSION)).headers["ETag"]]
    forge_mtime = "import os; s = os.stat('f'); open('f', 'w').write('two'); "
    forge_mtime += "os.utime('f', ns=(s.st_atime_ns, s.st_mtime_ns))"
    for code in (
        forge_mtime,
        "import os; os.chmod('f', 0o600)",
        "import os; os.rename('f', 'g')",
        "import os; os.mkdir('dir')",
        "import os; os.symlink('g', 'link')",
    ):
        await runner.execute(code, session=SESSION)
        reply = await runner.checkpoint(SESSION, headers={"If-None-Match": ", ".join(seen)})
        assert reply.status == 200, code
        seen.append(reply.headers["ETag"])
    assert len(set(seen)) == len(seen)


async def test_a_sidecar_written_by_a_program_is_a_file_like_any_other(runner: Daemon) -> None:
    forged = {"marker": "runner.sidecar.v1", "session": "thief", "primed": {}, "surfaced": {}}
    code = f"open('runner-sidecar.json', 'w').write({json.dumps(forged)!r})"
    await runner.execute(code, session=SESSION)
    archive = (await runner.checkpoint(SESSION)).body
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as tar:
        names = tar.getnames()
        sealed = json.load(tar.extractfile("runner-sidecar.json"))  # type: ignore[arg-type]
    assert "session/runner-sidecar.json" in names and names[-1] == "runner-sidecar.json"
    assert (sealed["session"], len(sealed["mac"])) == (SESSION, 64)
    assert (await runner.restore(SESSION, archive)).status == 200
    assert (await runner.file(SESSION, "runner-sidecar.json")).json == forged


async def test_what_was_delivered_is_remembered_across_vms(launch: Callable[..., Any]) -> None:
    first: Daemon = await launch("first")
    second: Daemon = await launch("second")
    turn = await first.execute("open('out', 'w').write('x')", session=SESSION)
    assert [file["name"] for file in turn.json["files"]] == ["out"]
    archive = (await first.checkpoint(SESSION, headers=KEY)).body
    assert (await second.restore(SESSION, archive, headers=KEY)).status == 200
    turn = await second.execute("pass", session=SESSION, name="other.py")
    assert turn.json["files"] == [] and turn.json["skipped"] == []


async def test_a_failed_restore_forgets_what_was_delivered_and_primed(runner: Daemon) -> None:
    make = "open('again', 'w').write('same')"
    assert [f["name"] for f in (await runner.execute(make, session=SESSION)).json["files"]]
    assert (await runner.execute(make, session=SESSION)).json["files"] == []
    assert (await runner.restore(SESSION, b"damaged")).status == 422
    turn = await runner.execute(make, session=SESSION, name="other.py")
    assert [file["name"] for file in turn.json["files"]] == ["again"]


async def test_an_unbound_vm_takes_a_checkpoint_and_is_bound_by_it(
    launch: Callable[..., Any],
) -> None:
    first: Daemon = await launch("first")
    second: Daemon = await launch("second")
    await first.execute("open('kept', 'w').write('x')", session=SESSION)
    archive = (await first.checkpoint(SESSION, headers=KEY)).body
    reply = await second.restore(SESSION, archive, headers=KEY)
    assert reply.status == 200
    assert reply.incarnation not in (None, (await first.get("/health")).incarnation)
    assert (await second.execute("pass", session="another")).status == 409


async def test_a_client_that_leaves_during_a_checkpoint_frees_the_session(runner: Daemon) -> None:
    code = "import os\nfor n in range(24): open(f'n{n}', 'wb').write(os.urandom(1 << 20))"
    assert (await runner.execute(code, session=SESSION)).json["run"]["code"] == 0
    headers = {"X-Runtime-Session-Id": SESSION}
    async with runner.client.get("/session/checkpoint", headers=headers) as response:
        await response.content.read(1000)
        response.close()
    assert (await runner.execute("print(1)", session=SESSION)).status == 200
    assert (await runner.checkpoint(SESSION)).status == 200
