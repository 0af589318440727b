"""One file in and out from outside: PUT, DELETE, and a listing with hashes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import yarl

from tests.e2e.test_inputs import SKILL, push, reference
from tests.harness import Daemon, Reply

UID = 200000


async def put(daemon: Daemon, path: str, body: object, **headers: str) -> Reply:
    return await daemon.request(
        "PUT", f"/session/files/{path}", session="s", data=body, headers=headers
    )


async def delete(daemon: Daemon, path: str, **headers: str) -> Reply:
    return await daemon.request("DELETE", f"/session/files/{path}", session="s", headers=headers)


def workspace(daemon: Daemon) -> Path:
    return daemon.data_root / "workspace"


async def test_a_file_put_is_the_programs_and_no_output(daemon: Daemon) -> None:
    reply = await put(daemon, "a/b.txt", b"one")
    assert reply.status == 201 and reply.json["sha256"] == hashlib.sha256(b"one").hexdigest()
    status = (workspace(daemon) / "a/b.txt").stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (UID, 0o644)
    ran = await daemon.execute("f = open('a/b.txt', 'r+'); print(f.read())", session="s")
    assert ran.json["run"]["stdout"] == "one\n" and ran.json["files"] == []
    ran = await daemon.execute("open('a/b.txt', 'a').write('!')", session="s")
    assert [(f["name"], f["content"]) for f in ran.json["files"]] == [("a/b.txt", "one!")]


async def test_a_replaced_file_keeps_its_permissions(daemon: Daemon) -> None:
    await daemon.execute("import os; open('x','w').close(); os.chmod('x', 0o751)", session="s")
    reply = await put(daemon, "x", b"new")
    assert reply.status == 200 and reply.json["mode"] == 0o751
    assert (await daemon.file("s", "x")).body == b"new"


async def test_conditions_guard_against_lost_updates(daemon: Daemon) -> None:
    first = await put(daemon, "x", b"1", **{"If-None-Match": "*"})
    etag = first.headers["ETag"]
    assert first.status == 201 and (await daemon.file("s", "x")).headers["ETag"] == etag
    assert (await put(daemon, "x", b"2", **{"If-None-Match": "*"})).status == 412
    second = await put(daemon, "x", b"2", **{"If-Match": etag})
    assert second.status == 200
    stale = await put(daemon, "x", b"3", **{"If-Match": etag})
    assert (stale.status, stale.json["error"]) == (412, "precondition_failed")
    assert (await delete(daemon, "x", **{"If-Match": etag})).status == 412
    assert (await put(daemon, "none", b"", **{"If-Match": "*"})).status == 412
    assert (await daemon.file("s", "x")).body == b"2"
    assert (await delete(daemon, "x", **{"If-Match": second.headers["ETag"]})).status == 204
    assert (await delete(daemon, "x")).status == 404


async def test_no_link_is_followed_and_nothing_in_the_way_is_removed(daemon: Daemon) -> None:
    code = """
import os
os.mkdir('dir'); open('dir/kept', 'w').close(); open('file', 'w').close()
os.symlink('/etc', 'link'); os.symlink('/etc/passwd', 'leaf')
"""
    await daemon.execute(code, session="s")
    passwd = Path("/etc/passwd").read_bytes()
    for path, reason in (
        ("link/evil", "not_a_directory"),
        ("file/below", "not_a_directory"),
        ("dir", "is_a_directory"),
    ):
        for reply in (await put(daemon, path, b"x"), await delete(daemon, path)):
            assert (reply.status, reply.json["reason"]) == (400, reason)
            assert "relative path" not in reply.json["message"]
    assert (await put(daemon, "leaf", b"mine")).status == 200
    assert Path("/etc/passwd").read_bytes() == passwd
    assert not (workspace(daemon) / "leaf").is_symlink()
    assert (workspace(daemon) / "leaf").read_bytes() == b"mine"
    assert (await delete(daemon, "link")).status == 204
    assert Path("/etc").is_dir() and not os.path.lexists(workspace(daemon) / "link")
    assert (await daemon.paths("s")) == ["dir/kept", "file", "leaf", "main"]


async def test_read_only_inputs_are_not_edited(daemon: Daemon) -> None:
    await push(daemon, SKILL)
    await daemon.execute("1", session="s", files=[reference(SKILL, "skill.md")])
    for reply in (await put(daemon, "skill.md", b"x"), await delete(daemon, "skill.md")):
        assert (reply.status, reply.json["reason"]) == (400, "read_only_input")


async def test_names_that_are_not_canonical_are_refused(daemon: Daemon) -> None:
    for path in ("%2e%2e/x", "a//b", "a%00b", "a/" + "x" * 256):
        # The client must not normalise what is tested.
        url = yarl.URL(f"{daemon.url}/session/files/{path}", encoded=True)
        session = {"X-Runtime-Session-Id": "s"}
        async with daemon.client.put(url, data=b"x", headers=session) as reply:
            assert reply.status in (400, 404), path
    assert (await daemon.get("/session/files", session="s")).json["error"] == "session_unbound"


async def test_a_body_that_is_cut_changes_nothing(daemon: Daemon) -> None:
    await put(daemon, "x", b"before")
    _, writer = await asyncio.open_connection(*daemon.url.removeprefix("http://").split(":"))
    head = "PUT /session/files/x HTTP/1.1\r\nHost: x\r\nX-Runtime-Session-Id: s\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\nhalf".encode())
    await writer.drain()
    writer.close()
    await asyncio.sleep(0.1)
    assert (await daemon.file("s", "x")).body == b"before"
    assert os.listdir(daemon.data_root / "staging") == []


async def test_a_slow_upload_does_not_hold_the_session(daemon: Daemon) -> None:
    go_on = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"first"
        await go_on.wait()
        yield b" second"

    upload = asyncio.create_task(put(daemon, "x", slow()))
    assert (await daemon.execute("1", session="s")).status == 200
    go_on.set()
    assert (await upload).status == 201
    assert (await daemon.file("s", "x")).body == b"first second"


async def test_an_upload_over_the_cap_is_refused(start) -> None:
    daemon = await start(RUNNER_FILE_MAX_BYTES="1KiB")
    assert (await put(daemon, "x", b"x" * 1024)).status == 201

    async def undeclared() -> AsyncIterator[bytes]:
        yield b"y" * 1025

    for body in (b"y" * 1025, undeclared()):
        reply = await put(daemon, "x", body)
        assert (reply.status, reply.json["error"]) == (413, "body_too_large")
    assert (await daemon.file("s", "x")).body == b"x" * 1024


async def test_the_listing_hashes_when_asked(daemon: Daemon) -> None:
    await put(daemon, "a", b"one")
    await put(daemon, "b", b"")
    plain = (await daemon.get("/session/files", session="s")).json["files"]
    assert [row["path"] for row in plain] == ["a", "b"] and "sha256" not in plain[0]
    hashed = (await daemon.get("/session/files?sha256=1", session="s")).json["files"]
    assert [row["sha256"] for row in hashed] == [
        hashlib.sha256(body).hexdigest() for body in (b"one", b"")
    ]
    assert (await daemon.get("/session/files?sha256=x", session="s")).status == 400


async def test_a_gibibyte_goes_up_in_bounded_memory(daemon: Daemon) -> None:
    def memory(what: str) -> int:
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith(what)).split()[1])

    piece = os.urandom(1 << 20)

    async def gibibyte() -> AsyncIterator[bytes]:
        for _ in range(1024):
            yield piece

    Path(f"/proc/{daemon.pid}/clear_refs").write_text("5")
    before = memory("VmRSS")
    reply = await put(daemon, "big", gibibyte())
    assert reply.status == 201 and reply.json["size"] == 1 << 30
    assert memory("VmHWM") - before < 64 << 10
    assert (await delete(daemon, "big")).status == 204
