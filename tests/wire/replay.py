"""Recorded pairs against a real daemon: what is sent, and what has to be the same in the answer.

Compared are status, the fields that a control plane reads (`reads` in pairs.json) and the shapes.
Free: ids and times that the runner makes up, wording, the order of `files`, fields that are added.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness import Daemon, Reply

PAIRS = json.loads(Path(__file__).with_name("pairs.json").read_text("utf-8"))["pairs"]
#: What the runtimes file calls python.
PYTHON = "/usr/bin/python3"
BY_ID = {pair["id"]: pair for pair in PAIRS}
RECORDED_VERSION = "3.14.4"
FREE_TEXT = "<free text>"
#: The recorded runner starts programs through a shell, which has its own say of their deaths.
SHELL = "<runner dir>"
_ID = re.compile(r"[A-Za-z0-9_-]{21}")
_CUT = re.compile(r"^(.*?)….*…(.*)$", re.DOTALL)
#: Compared in every row of `files`; `id` where it is the client's own.
ROW = ("name", "storage_session_id", "inherited", "modified_from", "entity_id")


class Replayer:
    """Sends pairs and remembers which."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(
        self,
        daemon: Daemon,
        pair_id: str,
        *,
        body: Any = None,
        path: str | None = None,
        headers: dict[str, str] | None = None,
        expect: Callable[[Reply], None] | None = None,
    ) -> Reply:
        """Replays one. `body` stands for a placeholder; `expect` is our decision instead."""
        pair = BY_ID[pair_id]
        self.seen.append(pair_id)
        assert (expect is not None) == bool(pair.get("ours_differs") or pair.get("later")), pair_id
        reply = await send(daemon, pair["request"], body=body, path=path, headers=headers)
        try:
            if expect is not None:
                expect(reply)
            else:
                compare(pair, reply)
        except AssertionError as error:
            raise AssertionError(
                f"{pair_id}: {error}\n{reply.status} {reply.body[:2000]!r}"
            ) from None
        return reply


def python_version() -> str:
    """Of the jailed Python, which need not be the one that runs the tests."""
    said = subprocess.run([PYTHON, "--version"], check=True, capture_output=True, text=True)
    return said.stdout.split()[1]


async def send(
    daemon: Daemon,
    request: dict[str, Any],
    *,
    body: Any = None,
    path: str | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    sent = request["body"] if body is None else body
    if isinstance(sent, dict):
        if sent.get("version") == RECORDED_VERSION:
            sent = sent | {"version": "3.x"}
        sent = json.dumps(sent)
    return await daemon.request(
        request["method"],
        path or request["path"],
        headers=request["headers"] | (headers or {}),
        data=sent,
    )


def compare(pair: dict[str, Any], reply: Reply) -> None:
    """The whole answer to one pair."""
    wanted = pair["response"]
    assert reply.status == wanted["status"], f"status {reply.status}, recorded {wanted['status']}"
    for name, value in wanted.get("headers", {}).items():
        assert reply.headers[name] == value, name
    if not isinstance(wanted["body"], dict):
        return
    if wanted["status"] >= 400:
        _compare_error(wanted["body"], reply.json)
    elif "run" in wanted["body"]:
        _compare_result(pair["request"]["body"], wanted["body"], reply.json)
    else:
        _compare_plain(wanted["body"], reply.json)


def _compare_error(wanted: dict[str, Any], got: dict[str, Any]) -> None:
    assert isinstance(got["message"], str) and got["message"]
    if "error" in wanted:
        assert got["error"] == wanted["error"]


def _compare_plain(wanted: dict[str, Any], got: dict[str, Any]) -> None:
    """Scalars and lists as recorded, but for the details of a health that nobody reads."""
    for key in wanted.keys() - {"workspaceRoot", "retainedWorkspaceCleanups", "uidSlots"}:
        assert got[key] == wanted[key], key


def _compare_result(request: dict[str, Any], wanted: dict[str, Any], got: dict[str, Any]) -> None:
    assert got["language"] == wanted["language"]
    if wanted["version"] == RECORDED_VERSION:
        assert got["version"] == python_version()
    if "output_session_id" in request:
        assert got["session_id"] == wanted["session_id"]
    else:
        assert _ID.fullmatch(got["session_id"])
    compare_stage(wanted["run"], got["run"])
    compare_files(wanted["files"], got["files"])


def compare_stage(wanted: dict[str, Any], got: dict[str, Any]) -> None:
    assert wanted.keys() <= got.keys()
    for key in ("code", "signal", "status"):
        assert got[key] == wanted[key], f"{key}: {got[key]!r}, recorded {wanted[key]!r}"
    assert (got["message"] is None) == (wanted["message"] is None), "message"
    for key in ("wall_time", "cpu_time", "memory"):
        # Recorded as null where they were not measured; ours always are.
        assert isinstance(got[key], int), key
    for key in ("stdout", "stderr", "output"):
        if SHELL not in wanted[key]:
            _compare_text(wanted[key], got[key], key)


def _compare_text(wanted: str, got: str, key: str) -> None:
    cut = _CUT.match(wanted)
    if cut is not None:
        # The recorded runner adds a line of its own to the stream that it cut; ours says it in
        # `message` and `truncated`, and the stream holds what the program wrote.
        assert got.startswith(cut[1]) and len(got) >= 1024, key
    elif "[sandbox]" not in wanted:
        # Of two pipes nobody can say which was written first.
        assert sorted(got.splitlines()) == sorted(wanted.splitlines()), (key, got, wanted)


def compare_files(wanted: list[dict[str, Any]], got: list[dict[str, Any]]) -> None:
    assert [_row(row) for row in _by_name(got)] == [_row(row) for row in _by_name(wanted)]
    for mine, theirs in zip(_by_name(got), _by_name(wanted), strict=True):
        if theirs.get("inherited"):
            assert mine["id"] == theirs["id"]
        else:
            assert _ID.fullmatch(mine["id"])


def _by_name(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["name"])


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row.get(key) for key in ROW}
