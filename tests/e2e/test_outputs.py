"""What a client gets of the files that a program made, and what it gets only once."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon, Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")


def names(reply: Reply) -> list[str]:
    assert reply.status == 200, reply.body
    return [file["name"] for file in reply.json["files"]]


def by_name(reply: Reply) -> dict[str, Any]:
    return {file["name"]: file for file in reply.json["files"]}


async def test_text_comes_as_text_and_bytes_as_base64(runner: Daemon) -> None:
    code = "open('t', 'w').write('häl\\nlo'); open('b', 'wb').write(bytes(range(256)))"
    files = by_name(await runner.execute(code, session=SESSION))
    assert (files["t"]["encoding"], files["t"]["content"]) == ("utf8", "häl\nlo")
    assert files["b"]["encoding"] == "base64"
    content = base64.b64decode(files["b"]["content"])
    assert content == bytes(range(256))
    assert (files["b"]["size"], files["b"]["mode"]) == (256, 0o644)
    assert files["b"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert len({file["id"] for file in files.values()}) == 2


async def test_inputs_are_no_outputs_until_they_are_changed(runner: Daemon) -> None:
    inputs = [{"name": "data.csv", "content": "a,b"}, {"name": "notes", "content": "n"}]
    assert names(await runner.execute("pass", session=SESSION, files=inputs)) == []
    change = "open('data.csv', 'a').write('c')"
    changed = await runner.execute(change, session=SESSION, files=inputs)
    assert by_name(changed)["data.csv"]["content"] == "a,bc"
    # The edit stays where the same original comes again, and is not given twice.
    again = await runner.execute("print(open('data.csv').read())", session=SESSION, files=inputs)
    assert (again.json["run"]["stdout"], names(again)) == ("a,bc\n", [])


async def test_an_output_is_given_once_and_again_when_it_changes(runner: Daemon) -> None:
    make = "open('once', 'w').write({!r})"
    assert names(await runner.execute(make.format("1"), session=SESSION)) == ["once"]
    assert names(await runner.execute("pass", session=SESSION)) == []
    assert names(await runner.execute(make.format("1"), session=SESSION)) == []
    assert names(await runner.execute(make.format("2"), session=SESSION)) == ["once"]
    assert names(await runner.execute(make.format("1"), session=SESSION)) == ["once"]


async def test_the_bytes_decide_and_not_size_or_mtime(runner: Daemon) -> None:
    assert names(await runner.execute("open('f', 'w').write('one')", session=SESSION)) == ["f"]
    forge = (
        "import os; s = os.stat('f'); open('f', 'w').write('two');"
        " os.utime('f', ns=(s.st_atime_ns, s.st_mtime_ns))"
    )
    assert names(await runner.execute(forge, session=SESSION)) == ["f"]
    touch = "import os; os.utime('f'); os.chmod('f', 0o600)"
    assert names(await runner.execute(touch, session=SESSION)) == []


async def test_they_come_sorted_and_with_their_directories(runner: Daemon) -> None:
    code = "import os; os.makedirs('z/y'); [open(n, 'w') for n in ('z/y/x', 'b', 'a', 'z/c')]"
    assert names(await runner.execute(code, session=SESSION)) == ["a", "b", "z/c", "z/y/x"]


async def test_what_is_over_the_budget_is_named_and_can_be_fetched(runner: Daemon) -> None:
    code = "open('large', 'wb').write(b'l' * (1 << 20) + b'!'); open('little', 'w').write('x')"
    reply = await runner.execute(code, session=SESSION)
    assert names(reply) == ["little"]
    skipped = {each["name"]: each for each in reply.json["skipped"]}["large"]
    assert (skipped["reason"], skipped["size"]) == ("inline_budget", (1 << 20) + 1)
    fetched = await runner.get(skipped["href"], session=SESSION)
    assert (fetched.status, fetched.body) == (200, b"l" * (1 << 20) + b"!")


async def test_a_name_that_needs_quoting_has_an_href_that_works(runner: Daemon) -> None:
    name = "d/100% ünï?#&.bin"
    code = (
        f"import os; os.makedirs('d', exist_ok=True); open({name!r}, 'wb').write(b'q' * (2 << 20))"
    )
    reply = await runner.execute(code, session=SESSION)
    skipped = {each["name"]: each for each in reply.json["skipped"]}[name]
    fetched = await runner.get(skipped["href"], session=SESSION)
    assert (fetched.status, len(fetched.body)) == (200, 2 << 20)


async def test_what_is_no_file_is_named_with_its_reason(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    code = (
        "import os; os.symlink('/etc/passwd', 'link'); os.mkfifo('fifo');"
        " open(b'raw-\\xff', 'w').write('x'); os.makedirs('/'.join('abcdefghijk'))"
    )
    reply = await daemon.execute(code, session=SESSION)
    assert names(reply) == []
    reasons = {each["name"]: each["reason"] for each in reply.json["skipped"]}
    assert reasons == {
        "a/b/c/d/e/f/g/h/i/j": "too_deep",
        "fifo": "not_regular",
        "link": "not_regular",
        "raw-\\xff": "name_not_utf8",
    }
    assert reply.json["skipped_total"] == 4


async def test_more_files_than_are_returned_are_counted(launch: Callable[..., Any]) -> None:
    daemon: Daemon = await launch()
    code = "[open(f'f{n:04}', 'w').write(str(n)) for n in range(600)]"
    reply = await daemon.execute(code, session=SESSION)
    first = names(reply)
    assert 0 < len(first) < 600 and first == sorted(first)
    assert {each["reason"] for each in reply.json["skipped"]} == {"too_many"}
    assert reply.json["skipped_total"] == 600 - len(first)
    second = names(await daemon.execute("pass", session=SESSION))
    assert len(second) == len(first) and set(second).isdisjoint(first)


async def test_a_stateless_run_returns_its_files_too(runner: Daemon) -> None:
    reply = await runner.execute("open('out', 'w').write('x')")
    assert by_name(reply)["out"]["content"] == "x"
    assert by_name(reply)["out"]["storage_session_id"] == reply.json["session_id"]


async def test_outputs_of_a_program_that_failed_are_returned(runner: Daemon) -> None:
    reply = await runner.execute("open('partial', 'w').write('x'); 1 / 0", session=SESSION)
    assert names(reply) == ["partial"] and reply.json["run"]["code"] == 1
    code = "open('late', 'w').write('x'); import time; time.sleep(9)"
    reply = await runner.execute(code, session=SESSION, run_timeout=400)
    assert reply.json["run"]["outcome"]["kind"] == "timed_out" and names(reply) == ["late"]


async def test_what_a_lost_client_did_not_get_is_given_next_time(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch(RUNNER_INLINE_MAX_BYTES="64MiB")
    await daemon.execute("pass", session=SESSION)
    code = "open('lost', 'wb').write(b'l' * (24 << 20))"
    body = json.dumps({"language": "python", "files": [{"name": "m", "content": code}]}).encode()
    with socket.socket() as client:
        # Too small a buffer for the answer: the daemon is still writing when the client goes.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = daemon.url.removeprefix("http://").split(":")
        client.connect((host, int(port)))
        client.sendall(
            f"POST /execute HTTP/1.1\r\nHost: x\r\nX-Runtime-Session-Id: {SESSION}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert (await asyncio.to_thread(client.recv, 12)) == b"HTTP/1.1 200"
    next_time = await daemon.execute("pass", session=SESSION)
    assert names(next_time) == ["lost"]
    assert names(await daemon.execute("pass", session=SESSION)) == []


async def test_nothing_outside_the_workspace_is_ever_returned(runner: Daemon) -> None:
    code = "import os; os.symlink('/etc', 'etc'); os.symlink('/etc/hostname', 'host')"
    reply = await runner.execute(code, session=SESSION)
    assert names(reply) == []
    assert os.uname().nodename.encode() not in reply.body.replace(b"skipped", b"")
