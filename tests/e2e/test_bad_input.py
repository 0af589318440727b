"""Bad input gets a clear typed error that names its field, and nothing has changed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = {"Content-Type": "application/json"}


def body(*names: str, **changes: Any) -> dict[str, Any]:
    files = [{"name": name, "content": "print('ran')"} for name in names or ("bad.py",)]
    return {"language": "python", "version": "*", "files": files} | changes


def file(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "bad.py", "content": "print('ran')"} | changes]


@dataclasses.dataclass(frozen=True)
class Bad:
    """One bad request: what is sent, and what has to come back."""

    sent: Any
    error: str = "invalid_request"
    field: str | None = None
    reason: str | None = None
    status: int = 400
    headers: dict[str, str] = dataclasses.field(default_factory=lambda: JSON)

    @property
    def raw(self) -> bytes:
        return self.sent if isinstance(self.sent, bytes) else json.dumps(self.sent).encode()


def bad_path(name: str, reason: str) -> Bad:
    return Bad(body("good.py", name), "invalid_path", "files[1].name", reason)


CASES = {
    "not JSON": Bad(b"{", reason="not_json"),
    "an empty body": Bad(b"", reason="not_json"),
    "not UTF-8": Bad(b'{"language": "\xff"}', reason="not_json"),
    "nested without end": Bad(b'{"x": ' + b"[" * 100_000, reason="not_json"),
    "a JSON scalar": Bad(7),
    "a JSON string": Bad("python"),
    "JSON null": Bad(None),
    "a JSON array": Bad([body()]),
    "no language": Bad({"files": file()}),
    "no files": Bad({"language": "python"}),
    "an empty list of files": Bad(body(files=[]), field="files"),
    "files that are an object": Bad(body(files={}), field="files"),
    "a file that is a string": Bad(body(files=["x"]), field="files[0]"),
    "a language that is a number": Bad(body(language=3), field="language"),
    "a name that is a number": Bad(body(files=file(name=3)), field="files[0].name"),
    "content that is a number": Bad(body(files=file(content=3)), field="files[0].content"),
    "args that are a string": Bad(body(args="x"), field="args"),
    "an environment of numbers": Bad(body(env_vars={"A": 1}), field="env_vars[...]"),
    "a limit that is text": Bad(body(run_timeout="1s"), field="run_timeout"),
    "a limit with a fraction": Bad(body(run_timeout=1.5), field="run_timeout"),
    "an unknown language": Bad(body(language="cobol"), field="language", reason="unknown_runtime"),
    "an unknown version": Bad(body(version="2.7"), field="language", reason="unknown_runtime"),
    "two files at one path": Bad(
        body("a.py", "b.py", "a.py"), "invalid_path", "files[2].name", "duplicate"
    ),
    "a file under a file": Bad(body("a.py", "a.py/b"), "invalid_path", "files[1].name", "nested"),
    "a file above a file": Bad(body("a/b", "a"), "invalid_path", "files[0].name", "nested"),
    "an absolute path": bad_path("/etc/passwd", "absolute"),
    "a path upwards": bad_path("a/../../b", "traversal"),
    "only upwards": bad_path("..", "traversal"),
    "a dot component": bad_path("./a", "not_canonical"),
    "a dot": bad_path(".", "not_canonical"),
    "an empty component": bad_path("a//b", "not_canonical"),
    "a trailing slash": bad_path("a/", "not_canonical"),
    "an empty name": bad_path("", "empty"),
    "NUL in a name": bad_path("a\0b", "nul"),
    "a component of 300 bytes": bad_path("x" * 300, "component_too_long"),
    "a name of 300 bytes": bad_path("x" * 100 + "/" + "y" * 199, "too_long"),
    "eleven components": bad_path("/".join("abcdefghijk"), "too_deep"),
    "257 files": Bad(
        body(*(f"f{n}" for n in range(257))), "limit_exceeded", "files", "too_many_files"
    ),
    "bad base64": Bad(body(files=file(content="@@@", encoding="base64")), field="files[0].content"),
    "bad hex": Bad(body(files=file(content="abc", encoding="hex")), field="files[0].content"),
    "an unknown encoding": Bad(body(files=file(encoding="rot13")), field="files[0].encoding"),
    "neither content nor id": Bad(body(files=[{"name": "a"}]), field="files[0]", reason="neither"),
    "content and id": Bad(
        body(files=file(id="i", storage_session_id="s")), field="files[0]", reason="both"
    ),
    "an environment that is too large": Bad(
        body(env_vars={f"V{n}": "x" * 100_000 for n in range(11)}), "limit_exceeded", "env_vars"
    ),
    "a variable that is too large": Bad(
        body(env_vars={"V": "x" * 131_072}), "limit_exceeded", "env_vars"
    ),
    "a variable without a name": Bad(body(env_vars={"": "x"}), field="env_vars"),
    "a variable name with =": Bad(body(env_vars={"A=B": "x"}), field="env_vars"),
    "NUL in a variable": Bad(body(env_vars={"A": "\0"}), field="env_vars", reason="nul"),
    "NUL in an argument": Bad(body(args=["a\0"]), field="args", reason="nul"),
    "a time above its ceiling": Bad(body(run_timeout=30_001), "limit_exceeded", "run_timeout"),
    "a compile time above its ceiling": Bad(
        body(language="c", compile_timeout=10_001), "limit_exceeded", "compile_timeout"
    ),
    "memory above its ceiling": Bad(
        body(run_memory_limit=1 << 40), "limit_exceeded", "run_memory_limit"
    ),
    "a negative time": Bad(body(run_timeout=-1), field="run_timeout"),
    "a memory that no jail starts with": Bad(
        body(run_memory_limit=(8 << 20) - 1), field="run_memory_limit"
    ),
    "a hundred thousand arguments": Bad(body(args=[""] * 100_000), "limit_exceeded", "args"),
    "a negative memory": Bad(body(run_memory_limit=-1), field="run_memory_limit"),
    "a time of zero": Bad(body(run_timeout=0), field="run_timeout"),
    "a body over the cap": Bad(
        b'{"x": "' + b"x" * (50 << 20) + b'"}', "body_too_large", status=413
    ),
    "another content type": Bad(
        body(), "unsupported_media_type", "Content-Type", status=415, headers={}
    ),
    "a compressed body": Bad(
        body(),
        "unsupported_media_type",
        "Content-Encoding",
        status=415,
        headers=JSON | {"Content-Encoding": "gzip"},
    ),
    "a body in an unknown encoding": Bad(
        body(),
        "unsupported_media_type",
        "Content-Encoding",
        status=415,
        headers=JSON | {"Content-Encoding": "zstd"},
    ),
    "half a character": Bad(b'{"language": "\\ud800", "files": []}', reason="not_json"),
    "a form": Bad(
        body(),
        "unsupported_media_type",
        "Content-Type",
        status=415,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_bad_input_is_refused_by_name_and_changes_nothing(runner: Daemon, name: str) -> None:
    case = CASES[name]
    before = await runner.get("/session/files", session=SESSION)
    reply = await runner.request(
        "POST", "/execute", session=SESSION, data=case.raw, headers=case.headers
    )
    error = reply.json
    assert (reply.status, error["error"]) == (case.status, case.error), error
    assert error.get("field") == case.field, error
    assert case.reason is None or error.get("reason") == case.reason, error
    assert error["retryable"] is False and error["recycle"] is False
    assert reply.incarnation is not None
    after = await runner.get("/session/files", session=SESSION)
    assert after.body == before.body


async def test_bad_input_binds_nothing(launch: Callable[..., Any]) -> None:
    unbound: Daemon = await launch(RUNNER_BODY_MAX_BYTES="2MiB")
    for name, case in CASES.items():
        sent = {"data": case.raw[: 3 << 20], "headers": case.headers}
        reply = await unbound.request("POST", "/execute", session=SESSION, **sent)
        assert (reply.status, reply.incarnation) == (case.status, None), name
    health = (await unbound.get("/health")).json
    assert health["session"] == {"state": "unbound", "incarnation": None, "dirty": None}
    assert (await unbound.execute("print(1)", session="another")).status == 200


async def test_the_session_works_on_after_all_of_it(runner: Daemon) -> None:
    reply = await runner.execute("print('ran')", session=SESSION)
    assert reply.json["run"]["stdout"] == "ran\n"


@pytest.mark.parametrize(
    "value",
    ["", "a b", "a/b", "ä", "x" * 129, "a,b", '"a"', "a\tb"],
    ids=lambda value: repr(value)[:9],
)
@pytest.mark.parametrize(
    "route", ["POST /execute", "GET /session/checkpoint", "GET /session/files"]
)
async def test_a_malformed_session_id_is_refused(runner: Daemon, route: str, value: str) -> None:
    method, path = route.split()
    reply = await runner.request(method, path, session=value, json=body())
    assert (reply.status, reply.json["error"]) == (400, "invalid_session_id")
    assert reply.json["field"] == "X-Runtime-Session-Id"


@pytest.mark.parametrize("second", [SESSION, "another"])
async def test_a_session_id_that_is_sent_twice_is_refused(runner: Daemon, second: str) -> None:
    headers = [("X-Runtime-Session-Id", SESSION), ("X-Runtime-Session-Id", second)]
    async with runner.client.post("/execute", headers=headers, json=body()) as response:
        error = await response.json()
    assert (response.status, error["error"]) == (400, "invalid_session_id")
    assert error["reason"] == "repeated"


@pytest.mark.parametrize("route", ["/session/checkpoint", "/session/files", "/session/files/x"])
async def test_a_session_route_without_a_session_is_refused(runner: Daemon, route: str) -> None:
    reply = await runner.get(route)
    assert (reply.status, reply.json["error"]) == (409, "session_unbound")
    assert reply.json["reason"] == "missing"


@pytest.mark.parametrize(
    "headers",
    [{"X-Expected-Incarnation": "a b"}, {"X-Sidecar-Key": "short"}, {"X-Sidecar-Key": "A" * 44}],
    ids=str,
)
async def test_a_malformed_header_of_a_checkpoint_is_refused(
    runner: Daemon, headers: dict[str, str]
) -> None:
    reply = await runner.checkpoint(SESSION, headers=headers)
    assert (reply.status, reply.json["error"]) == (400, "invalid_request")
    assert reply.json["field"] == next(iter(headers))


@pytest.mark.parametrize("route", ["GET /nothing", "PUT /execute", "DELETE /session/checkpoint"])
async def test_a_route_that_is_not_there_has_the_one_error_shape(
    runner: Daemon, route: str
) -> None:
    method, path = route.split()
    reply = await runner.request(method, path)
    assert (reply.status, reply.json["error"]) == (404, "not_found")
    assert reply.incarnation is not None


async def test_unknown_fields_are_ignored(runner: Daemon) -> None:
    reply = await runner.execute("print(1)", session=SESSION, of_the_future={"x": [1]})
    assert reply.json["run"]["stdout"] == "1\n"
