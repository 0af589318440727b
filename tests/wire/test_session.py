"""Turns of a session, its checkpoints, and what makes a workspace unusable, in recorded order."""

from __future__ import annotations

import asyncio
import io
import shutil
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from runner.checkpoint import inventory
from runner.checkpoint.limits import Limits
from runner.checkpoint.save import save
from runner.checkpoint.sidecar import SidecarFacts, derive_key
from runner.settings import sidecar_key
from runner.workspace.tree import Tree
from tests.harness import Daemon, Reply
from tests.mounts import tmpfs
from tests.pushing import Item, batch
from tests.wire.conftest import MASTER_KEY
from tests.wire.replay import BY_ID, Replayer, send
from tests.wire.scenarios import (
    BROKEN_JAIL,
    BROKEN_SAVES,
    DIRTY,
    HOOKS,
    INPUTS,
    PLAIN_RESTORE,
    REFUSED_RESTORES,
    SESSION,
)

RT = "rt_0123456789abcdef0123456789abcdef01234567"
PUSHED = (
    Item(
        "",
        "",
        b"x,y\n1,2\n",
        given_key="a030b3f6f56f4492b66e6a1d4d076d1a71fa3f0b1134059c02e18caa915337d8",
    ),
    Item(
        "",
        "",
        b"# SKILL\n",
        True,
        "0624533e37e302528203f7f678c49b952e6a7acf2efc03c8359f491c57197be5",
    ),
)


def _error(status: int, code: str, **more: Any) -> Any:
    def expect(reply: Reply) -> None:
        assert (reply.status, reply.json["error"]) == (status, code)
        assert {key: reply.json.get(key) for key in more} == more

    return expect


async def _inputs(daemon: Daemon, replay: Replayer) -> None:
    archive = batch(*PUSHED)
    await replay(daemon, "inputs.push", body=archive)
    for pair in ("probe.warm", "probe.bad_refs", "probe.dup"):
        await replay(daemon, pair)
    many = {"refs": [{"cache_key": f"{number:064x}"} for number in range(257)]}
    await replay(daemon, "probe.too_many", body=many)

    def refused(reply: Reply) -> None:
        assert reply.status in (400, 422)

    await replay(daemon, "inputs.expanded_mismatch", body=archive, expect=refused)
    await replay(daemon, "inputs.not_gzip", body=b"not gzip", expect=refused)


async def test_turns_of_a_session(recorded: Daemon, fast_dir: Path, replay: Replayer) -> None:
    daemon = recorded
    await _inputs(daemon, replay)
    await replay(daemon, "session.execute.turn1")
    await replay(daemon, "session.execute.turn2_resend")
    # Turn 3 is not recorded; turn 4 writes the bytes that it wrote.
    turn4 = BY_ID["session.execute.turn4_same_bytes"]["request"]
    turn3 = await send(daemon, turn4)
    assert [row["name"] for row in turn3.json["files"]] == ["out.txt"]
    await replay(daemon, "session.execute.turn4_same_bytes")
    await replay(daemon, "session.execute.other_session")
    await replay(daemon, "execute.headerless_while_bound")
    one = {"language": "python", "version": "*", "files": [{"content": "1"}]}

    def ran(reply: Reply) -> None:
        assert reply.status == 200 and reply.json["run"]["code"] == 0

    json_type = {"Content-Type": "application/json"}
    await replay(daemon, "session.no_uid_slot", body=one, headers=json_type, expect=ran)
    await replay(
        daemon,
        "session.execute.missing_input",
        expect=_error(409, "input_unavailable", recycle=False, field="x.csv"),
    )
    await replay(daemon, "session.execute.nul_name", expect=_error(400, "invalid_path"))
    saved = await replay(daemon, "checkpoint.ok")
    for pair in ("checkpoint.no_header", "checkpoint.malformed_header", "checkpoint.other_session"):
        await replay(daemon, pair)
    # Into a replacement VM that has never seen the session.
    async with Daemon(fast_dir / "replacement", daemon.environ) as replacement:
        await replay(replacement, "restore.ok", body=saved.body)
        await replay(replacement, "session.execute.after_restore")
    assert replay.seen == [*INPUTS, *SESSION]


async def test_restores_that_are_refused_leave_an_empty_workspace(
    recorded: Daemon, replay: Replayer
) -> None:
    bodies = {
        "restore.corrupt": (b"not gzip", "checkpoint_corrupt"),
        "restore.extra_member": (_tar("session", "evil"), "checkpoint_unsafe"),
        "restore.no_control": (_tar("session", "session/a.txt"), "checkpoint_unauthentic"),
    }
    for pair in REFUSED_RESTORES:
        body, code = bodies[pair]
        await recorded.execute("open('before','w').close()", session=RT)
        await replay(recorded, pair, body=body, expect=_error(422, code))
        assert await recorded.paths(RT) == []
    assert replay.seen == list(REFUSED_RESTORES)


def _tar(directory: str, name: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        root = tarfile.TarInfo(directory)
        root.type = tarfile.DIRTYPE
        tar.addfile(root)
        tar.addfile(tarfile.TarInfo(name))
    return out.getvalue()


async def test_a_plain_restore(recorded: Daemon, fast_dir: Path, replay: Replayer) -> None:
    """The recorded runner takes an archive that nobody sealed; this one holds the same, sealed."""
    tree_path = fast_dir / "plain"
    tree_path.mkdir()
    (tree_path / "a.txt").write_text("a")
    archive = _sealed(tree_path)
    assert (await recorded.restore(RT, archive)).status == 200
    await replay(recorded, *PLAIN_RESTORE)


def _sealed(path: Path) -> bytes:
    facts = SidecarFacts(
        session=RT,
        incarnation="another",
        created_at=datetime.now(UTC).isoformat(),
        primed={},
        surfaced={},
    )
    limits = Limits.of(1 << 20)
    key = derive_key(sidecar_key(MASTER_KEY), RT)
    with Tree.open(str(path)) as tree:
        plan = inventory.plan(tree, limits)
        return b"".join(save(tree, facts, plan, key=key, limits=limits))


async def test_a_dirty_workspace(recorded: Daemon, replay: Replayer) -> None:
    await recorded.execute("open('a.txt','w').write('a')", session=RT)
    saved = await recorded.checkpoint(RT)
    shutil.rmtree(recorded.data_root / "workspace")
    one = {"language": "python", "version": "*", "files": [{"content": "1"}]}
    await replay(
        recorded,
        "execute.setup_workspace_missing",
        body=one,
        headers={"X-Runtime-Session-Id": RT},
        expect=_error(409, "session_workspace_dirty", reason="workspace_missing", recycle=True),
    )
    await replay(recorded, "session.execute.while_dirty")
    await replay(recorded, "checkpoint.while_dirty")
    await replay(recorded, "restore.clears_dirty", body=saved.body)
    assert await recorded.paths(RT) == ["a.txt", "main"]
    assert replay.seen == list(DIRTY)


async def test_a_jail_that_cannot_be_set_up(fast_dir: Path, replay: Replayer) -> None:
    real = subprocess.run(
        [sys.executable, "-c", "from jail.host import find_nsjail; print(find_nsjail())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    nsjail = fast_dir / "nsjail"
    nsjail.symlink_to("/bin/false")
    daemon = Daemon(fast_dir / "root", {"RUNNER_NSJAIL": str(nsjail)})
    await daemon.start(ready=False)
    try:
        one = {"language": "python", "version": "*", "files": [{"content": "print(1)"}]}
        for pair in BROKEN_JAIL:
            body = one if pair == "execute.setup_eperm" else None
            expect = _error(500, "jail_failed", recycle=False)
            await replay(daemon, pair, body=body, expect=expect)
        assert replay.seen == list(BROKEN_JAIL)
        # Nothing is dirty: with a jail that works the session goes on.
        nsjail.unlink()
        nsjail.symlink_to(real)
        async with asyncio.timeout(20):
            while (await daemon.execute("print(1)", session="rt_x")).status == 500:
                await asyncio.sleep(0.1)
        assert (await daemon.execute("print(1)", session="rt_x")).json["run"]["code"] == 0
    finally:
        await daemon.stop()


async def test_saves_that_cannot_be_finished(recorded: Daemon, replay: Replayer) -> None:
    code = "import os; open('big','wb').write(os.urandom(48 << 20)); os.mkdir('mount')"
    await recorded.execute(code, session=RT)
    # A directory that nobody may look into is not silently left out.
    with tmpfs(recorded.data_root / "workspace" / "mount"):
        await replay(recorded, "checkpoint.tar_failed_before_bytes")
    await _failed_mid_stream(recorded, replay)
    assert replay.seen == list(BROKEN_SAVES)


async def _failed_mid_stream(daemon: Daemon, replay: Replayer) -> None:
    pair = BY_ID["checkpoint.failed_mid_stream"]
    replay.seen.append(pair["id"])
    request = pair["request"]
    async with daemon.client.get(request["path"], headers=request["headers"]) as response:
        assert response.status == pair["response"]["status"]
        assert response.headers["Content-Type"] == pair["response"]["headers"]["content-type"]
        await response.content.readexactly(64 << 10)
        (daemon.data_root / "workspace" / "big").write_bytes(b"another")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_hooks(fast_dir: Path, replay: Replayer) -> None:
    async with Daemon(fast_dir / "hooked") as daemon:
        for pair in HOOKS:
            await replay(daemon, pair)
    assert replay.seen == list(HOOKS)
