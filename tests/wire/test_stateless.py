"""Executions without a session, and requests that are refused."""

from __future__ import annotations

import json
from typing import Any

from tests.fileserver import FileServer
from tests.harness import Daemon, Reply
from tests.pushing import Item, batch
from tests.wire.replay import BY_ID, Replayer, compare_files, compare_stage
from tests.wire.scenarios import BAD_REQUESTS, LATER, NO_FILE_SERVER, NO_SESSIONS, STATELESS

GRANT = "ceg1.grant"
HANDLE = "ceg1.Zm9vYmFy-_"


def _run(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200
    return reply.json["run"]


def _exited_137(reply: Reply) -> None:
    run = _run(reply)
    assert (run["code"], run["signal"], run["outcome"]["kind"]) == (137, None, "exited")


def _killed(reply: Reply) -> None:
    run = _run(reply)
    assert (run["code"], run["signal"], run["status"]) == (137, "SIGKILL", "SG")
    assert run["outcome"]["kind"] == "signaled"


def _input_unavailable(reply: Reply) -> None:
    assert (reply.status, reply.json["error"]) == (409, "input_unavailable")
    assert reply.json["recycle"] is False


async def test_stateless_executions(recorded: Daemon, server: FileServer, replay: Replayer) -> None:
    await replay(recorded, "health.ok")
    for pair in ("execute.minimal", "execute.exit3", "execute.args_stdin"):
        await replay(recorded, pair)
    await _output_file(recorded, replay)
    await replay(recorded, "execute.byref_input_unchanged")
    _download_get(server, replay)
    _dirkeep_list(server, replay)
    await replay(recorded, "execute.stdout_overflow")
    await replay(recorded, "execute.stderr_truncated")
    await _sigsegv(recorded, replay)
    await replay(recorded, "execute.exit137_spoof", expect=_exited_137)
    await replay(recorded, "execute.sigkill_no_status", expect=_killed)
    await replay(recorded, "execute.malformed_header")
    await _compile_failed(recorded, replay)
    await replay(recorded, "input_not_delivered", expect=_input_unavailable)
    await _aws(recorded, replay)
    assert replay.seen == list(STATELESS)


async def _output_file(daemon: Daemon, replay: Replayer) -> None:
    """The recorded runner returns files by a list of extensions; ours by caps: skip.bin too."""
    pair = BY_ID["execute.output_file"]
    replay.seen.append(pair["id"])
    reply = await daemon.request(
        "POST", pair["request"]["path"], json=pair["request"]["body"] | {"version": "3.x"}
    )
    compare_stage(pair["response"]["body"]["run"], _run(reply))
    rest = [row for row in reply.json["files"] if row["name"] != "skip.bin"]
    compare_files(pair["response"]["body"]["files"], rest)
    assert len(rest) == len(reply.json["files"]) - 1


def _download_get(server: FileServer, replay: Replayer) -> None:
    """What our runner asks of the file server is what the recorded one asks."""
    replay.seen.append("download.get")
    shape = BY_ID["download.get"]["request"]["path"].removeprefix("{base}")
    asked = [each.path for each in server.requests("GET") if "?" not in each.path]
    named = {
        shape.replace("<storage_session_id>", "sessA").replace("<id>", object_id)
        for object_id in ("fileA", "ro1")
    }
    assert set(asked) == named
    assert not any("x-codeapi-egress-grant" in each.headers for each in server.seen)


def _dirkeep_list(server: FileServer, replay: Replayer) -> None:
    """The storage sessions of inputs are asked for markers of empty directories."""
    replay.seen.append("dirkeep.list")
    shape = BY_ID["dirkeep.list"]["request"]["path"].removeprefix("{base}")
    asked = [each.path for each in server.requests("GET") if "?" in each.path]
    assert asked == [shape.replace("<storage_session_id>", "sessA")]


async def _sigsegv(daemon: Daemon, replay: Replayer) -> None:
    """`status` was recorded as null here; ours is SG for every death by a signal."""
    pair = BY_ID["execute.sigsegv"]
    replay.seen.append(pair["id"])
    reply = await daemon.request(
        "POST", pair["request"]["path"], json=pair["request"]["body"] | {"version": "3.x"}
    )
    compare_stage(pair["response"]["body"]["run"] | {"status": "SG"}, _run(reply))


async def _compile_failed(daemon: Daemon, replay: Replayer) -> None:
    """With the compiled language that is here: `run` is the failed compile once more."""
    replay.seen.append("execute.compile_failed")
    body = {"language": "c", "version": "*", "files": [{"name": "main.c", "content": "int"}]}
    reply = await daemon.request("POST", "/api/v2/execute", json=body)
    wanted = BY_ID["execute.compile_failed"]["response"]["body"]["compile"]
    got = reply.json["compile"]
    assert reply.json["run"] == got and wanted.keys() <= got.keys()
    assert (got["code"], got["signal"], got["status"]) == (1, None, None)
    assert got["stderr"] and reply.json["files"] == []


async def _aws(daemon: Daemon, replay: Replayer) -> None:
    """The whole body that a control plane sends, with its proxy's headers and opaque handles."""
    pair = BY_ID["aws.execute_from_control_plane"]
    replay.seen.append(pair["id"])
    item = Item("raw-session", "raw-id", b"1,2\n")
    pushed = {"Content-Type": "application/x-gtar"}
    await daemon.request("POST", "/api/v2/session/inputs", data=batch(item), headers=pushed)
    recorded = pair["request"]["body"]
    main = {"name": "main.py", "content": "print(open('inputs/data.csv').read())"}
    data = {"id": HANDLE, "storage_session_id": HANDLE, "input_cache_key": item.key}
    body = recorded | {
        "version": "3.x",
        "files": [main, recorded["files"][1] | data],
        "output_session_id": HANDLE,
        "egress_grant": GRANT,
    }
    headers = {name: "x" for name in pair["request"]["headers"] if name.startswith("X-aws")}
    session = pair["request"]["headers"]["X-Runtime-Session-Id"]
    reply = await daemon.request(
        "POST", "/api/v2/execute", session=session, headers=headers, json=body
    )
    assert _run(reply)["stdout"] == "1,2\n\n"
    assert reply.json["session_id"] == HANDLE
    assert reply.json["files"] == [
        {
            "id": HANDLE,
            "name": "inputs/data.csv",
            "storage_session_id": HANDLE,
            "inherited": True,
        }
    ]


async def test_bad_requests(recorded: Daemon, replay: Replayer) -> None:
    bodies = {
        "err.body_too_large": json.dumps({"language": "x" * (51 << 20)}),
        "err.env_too_big": {
            "language": "python",
            "version": "3.x",
            "files": [{"content": "1"}],
            "env_vars": {"A": "x" * 1_000_001},
        },
    }
    for pair in BAD_REQUESTS:
        await replay(recorded, pair, body=bodies.get(pair))
    assert replay.seen == list(BAD_REQUESTS)


async def test_an_upload_that_fails_is_named(fast_dir: Any, replay: Replayer) -> None:
    def skipped(reply: Reply) -> None:
        assert _run(reply)["code"] == 0 and reply.json["files"] == []
        assert [(each["name"], each["reason"]) for each in reply.json["skipped"]] == [
            ("out.csv", "upload_unreachable")
        ]

    # Port 1 is nobody's.
    environ = {"RUNNER_FILE_SERVER_URL": "http://127.0.0.1:1"}
    async with Daemon(fast_dir / "alone", environ) as daemon:
        await replay(daemon, *NO_FILE_SERVER, expect=skipped)


async def test_a_deployment_without_sessions(fast_dir: Any, replay: Replayer) -> None:
    async with Daemon(fast_dir / "plain", {"RUNNER_SESSIONS": "false"}) as daemon:
        for pair in NO_SESSIONS:
            await replay(daemon, pair)
        assert (await daemon.get("/health")).incarnation is None


async def test_what_is_not_wanted_yet_is_ignored(recorded: Daemon, replay: Replayer) -> None:
    """Typed and harmless: an unknown field changes nothing, an input that is not here is named."""

    def ignored(reply: Reply) -> None:
        assert _run(reply)["code"] == 0

    for pair in LATER:
        names_an_input = pair == "manifest.cache_key_without_body_hash"
        await replay(recorded, pair, expect=_input_unavailable if names_an_input else ignored)
    assert replay.seen == list(LATER)
