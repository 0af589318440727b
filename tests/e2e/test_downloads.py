"""GET /session/files: a listing, and downloads with ranges and conditions, no link followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILL = """
import os
open('ten', 'w').write('0123456789'); os.chmod('ten', 0o640)
open('empty', 'w').close()
os.makedirs('dir/sub', exist_ok=True); open('dir/sub/deep', 'w').write('deep')
for name, make in {
    'link': lambda: os.symlink('ten', 'link'),
    'etc-link': lambda: os.symlink('/etc/passwd', 'etc-link'),
    'dir-link': lambda: os.symlink('dir', 'dir-link'),
    'fifo': lambda: os.mkfifo('fifo'),
}.items():
    os.path.lexists(name) or make()
"""


@pytest.fixture
def filled(runner: Daemon) -> Callable[[], Any]:
    async def fill() -> None:
        reply = await runner.execute(FILL, session=SESSION)
        assert reply.json["run"]["code"] == 0, reply.json["run"]

    return fill


async def test_the_listing_names_regular_files_only(runner: Daemon, filled: Any) -> None:
    await filled()
    reply = await runner.get("/session/files", session=SESSION)
    files = {file["path"]: file for file in reply.json["files"]}
    assert list(files) == ["dir/sub/deep", "empty", "main", "ten"]
    assert (files["ten"]["size"], files["ten"]["mode"]) == (10, 0o640)
    assert reply.json["truncated"] is False


async def test_a_whole_file(runner: Daemon, filled: Any) -> None:
    await filled()
    reply = await runner.file(SESSION, "dir/sub/deep")
    assert (reply.status, reply.body) == (200, b"deep")
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Content-Disposition"].startswith("attachment")
    assert reply.headers["Accept-Ranges"] == "bytes" and reply.headers["ETag"]
    assert (await runner.file(SESSION, "empty")).body == b""


RANGES = {
    "bytes=0-3": (206, b"0123", "bytes 0-3/10"),
    "bytes=4-": (206, b"456789", "bytes 4-9/10"),
    "bytes=-3": (206, b"789", "bytes 7-9/10"),
    "bytes=9-9": (206, b"9", "bytes 9-9/10"),
    "bytes=5-999": (206, b"56789", "bytes 5-9/10"),
    "bytes=-999": (206, b"0123456789", "bytes 0-9/10"),
    "bytes=0-": (206, b"0123456789", "bytes 0-9/10"),
    "bytes=10-": (416, None, "bytes */10"),
    "bytes=99-100": (416, None, "bytes */10"),
    "bytes=-0": (416, None, "bytes */10"),
    "lines=0-3": (200, b"0123456789", None),
    "bytes=x": (200, b"0123456789", None),
    "bytes=3-1": (200, b"0123456789", None),
}


@pytest.mark.parametrize("wanted", RANGES)
async def test_a_range_of_it(runner: Daemon, filled: Any, wanted: str) -> None:
    await filled()
    status, body, content_range = RANGES[wanted]
    reply = await runner.file(SESSION, "ten", headers={"Range": wanted})
    assert (reply.status, reply.headers.get("Content-Range")) == (status, content_range)
    if body is None:
        assert reply.json["error"] == "range_not_satisfiable"
    else:
        assert reply.body == body


async def test_a_range_of_another_version_is_all_of_this_one(runner: Daemon, filled: Any) -> None:
    await filled()
    etag = (await runner.file(SESSION, "ten")).headers["ETag"]
    for tag, status in ((etag, 206), ('"older"', 200)):
        headers = {"Range": "bytes=0-3", "If-Range": tag}
        assert (await runner.file(SESSION, "ten", headers=headers)).status == status


async def test_a_range_of_an_empty_file(runner: Daemon, filled: Any) -> None:
    await filled()
    assert (await runner.file(SESSION, "empty", headers={"Range": "bytes=0-"})).status == 416


async def test_an_unchanged_file_is_not_sent_again(runner: Daemon, filled: Any) -> None:
    await filled()
    etag = (await runner.file(SESSION, "ten")).headers["ETag"]
    reply = await runner.file(SESSION, "ten", headers={"If-None-Match": etag})
    assert (reply.status, reply.body, reply.headers["ETag"]) == (304, b"", etag)
    change = "import os; s = os.stat('ten'); open('ten', 'w').write('9876543210');"
    change += "os.utime('ten', ns=(s.st_atime_ns, s.st_mtime_ns))"
    await runner.execute(change, session=SESSION)
    reply = await runner.file(SESSION, "ten", headers={"If-None-Match": etag})
    assert (reply.status, reply.body) == (200, b"9876543210")


NOT_THERE = ["nothing", "link", "etc-link", "fifo", "dir", "dir-link/sub/deep", "ten/x", "dir/sub"]


@pytest.mark.parametrize("path", NOT_THERE)
async def test_what_is_no_regular_file_is_not_found(runner: Daemon, filled: Any, path: str) -> None:
    await filled()
    reply = await runner.file(SESSION, path)
    assert (reply.status, reply.json["error"]) == (404, "not_found")


@pytest.mark.parametrize(
    "path",
    ["..%2f..%2fetc%2fpasswd", "%2e%2e/state/key", "a%00b", "%2fetc/passwd", "a//b", "a/./b"],
)
async def test_a_path_that_leads_elsewhere_is_refused(runner: Daemon, path: str) -> None:
    # As it is: a client library would resolve the dots by itself.
    from yarl import URL

    url = URL(f"{runner.url}/session/files/{path}", encoded=True)
    headers = {"X-Runtime-Session-Id": SESSION}
    async with runner.client.get(url, headers=headers) as response:
        assert response.status in (400, 404)
        assert (await response.json())["error"] in ("invalid_path", "not_found")


async def test_a_raw_path_with_dots_never_leaves_the_workspace(runner: Daemon) -> None:
    import asyncio

    host, port = runner.url.removeprefix("http://").split(":")
    for path in ("/session/files/../../state/key", "/session/files/./../state/key"):
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Runtime-Session-Id: {SESSION}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        assert answer.split()[1] in (b"400", b"404"), answer
        assert (runner.data_root / "state/key").read_bytes() not in answer


async def test_a_file_that_was_fetched_whole_is_not_offered_again(launch: Any) -> None:
    daemon = await launch(RUNNER_INLINE_MAX_BYTES="1KiB")
    made = await daemon.execute("open('big', 'w').write('x' * 5000)", session=SESSION)
    assert [each["name"] for each in made.json["skipped"]] == ["big"]
    part = await daemon.file(SESSION, "big", headers={"Range": "bytes=0-99"})
    assert part.status == 206
    again = await daemon.execute("print(1)", session=SESSION)
    assert [each["name"] for each in again.json["skipped"]] == ["big"]
    assert (await daemon.file(SESSION, "big")).status == 200
    after = await daemon.execute("print(1)", session=SESSION)
    assert after.json["skipped"] == []
    changed = await daemon.execute("open('big', 'a').write('y')", session=SESSION)
    assert [each["name"] for each in changed.json["skipped"]] == ["big"]
