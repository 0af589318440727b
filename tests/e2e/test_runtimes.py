"""The languages that are really here run; what is not here is not offered."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = {
    "python": ("main.py", "print('hello')"),
    "bash": ("main.sh", "echo hello"),
    "javascript": ("main.js", "console.log('hello')"),
    "c": ("main.c", '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }'),
    "go": ("main.go", 'package main\nimport "fmt"\nfunc main() { fmt.Println("hello") }'),
}
BINARIES = {
    "python": "/usr/bin/python3",
    "bash": "/bin/bash",
    "javascript": "/usr/bin/node",
    "c": "/usr/bin/gcc",
    "go": "/usr/local/go/bin/go",
}


async def offered(daemon: Daemon) -> dict[str, Any]:
    reply = await daemon.get("/runtimes")
    assert reply.status == 200
    return {each["language"]: each for each in reply.json}


async def test_what_is_offered_is_what_is_installed(runner: Daemon) -> None:
    installed = {name for name, binary in BINARIES.items() if os.access(binary, os.X_OK)}
    found = await offered(runner)
    assert set(found) >= installed & set(BINARIES)
    assert not set(found) & (set(BINARIES) - installed)
    assert all(each["version"][0].isdigit() for each in found.values())
    assert found["python"]["limits"]["run_timeout"] == 30_000
    # Piston's clients look for the list at this path and iterate over it.
    assert (await runner.get("/api/v2/runtimes")).json == list(found.values())


@pytest.mark.parametrize("language", ["python", "bash", "javascript", "c"])
@pytest.mark.parametrize("session", [SESSION, None], ids=["session", "stateless"])
async def test_hello(runner: Daemon, language: str, session: str | None) -> None:
    name, code = HELLO[language]
    reply = await runner.execute(code, language=language, name=name, session=session)
    result = reply.json
    assert result["run"]["stdout"] == "hello\n", result
    assert result["language"] == language and result["files"] == []
    assert ("compile" in result) == (language == "c")


@pytest.mark.parametrize("language", ["python", "bash", "javascript", "c"])
async def test_hello_without_a_file_name(runner: Daemon, language: str) -> None:
    body = {"language": language, "version": "*", "files": [{"content": HELLO[language][1]}]}
    reply = await runner.request("POST", "/execute", json=body)
    assert reply.json["run"]["stdout"] == "hello\n", reply.json


@pytest.mark.parametrize("alias", ["py", "python3", "sh", "node", "js", "gcc"])
async def test_an_alias_is_the_language(runner: Daemon, alias: str) -> None:
    by_alias = {name: each for each in (await offered(runner)).values() for name in each["aliases"]}
    name, code = HELLO[by_alias[alias]["language"]]
    reply = await runner.execute(code, language=alias, name=name)
    assert reply.json["run"]["stdout"] == "hello\n"
    assert reply.json["language"] == by_alias[alias]["language"]


async def test_a_version_is_exact_or_a_prefix(runner: Daemon) -> None:
    exact = (await offered(runner))["python"]["version"]
    major, minor = exact.split(".")[:2]
    for version in (exact, f"{major}.x", major, f"{major}.{minor}", "*"):
        reply = await runner.execute("pass", version=version)
        assert (reply.status, reply.json.get("version")) == (200, exact), version
    for version in ("2.x", f"{exact}.1", f"{major}{minor}", "latest"):
        assert (await runner.execute("pass", version=version)).status == 400, version


async def test_a_failed_compile_is_both_stages(runner: Daemon) -> None:
    reply = await runner.execute("int main(void) { return x; }", language="c", name="bad.c")
    result = reply.json
    assert reply.status == 200
    assert result["compile"] == result["run"]
    assert result["compile"]["code"] == 1 and "bad.c" in result["compile"]["stderr"]
    assert result["compile"]["outcome"]["fault"] == "user"


async def test_a_compile_has_limits_of_its_own(runner: Daemon) -> None:
    include = '#include "/dev/zero"\nint main(void) { return 0; }'
    reply = await runner.execute(include, language="c", name="slow.c", compile_timeout=300)
    kind = reply.json["compile"]["outcome"]["kind"]
    assert kind in ("timed_out", "out_of_memory", "output_limit", "exited")
    assert reply.json["compile"]["code"] != 0


async def test_several_sources_are_compiled_together_and_headers_are_found(runner: Daemon) -> None:
    files = [
        {
            "name": "lib/twice.c",
            "content": '#include "twice.h"\nint twice(int n) { return 2 * n; }',
        },
        {"name": "lib/twice.h", "content": "int twice(int n);"},
        {"name": "notes.txt", "content": "no source"},
    ]
    code = '#include <stdio.h>\n#include "lib/twice.h"\nint main(void) { printf("%d", twice(21)); }'
    reply = await runner.execute(code, language="c", name="main.c", files=files)
    assert reply.json["run"]["stdout"] == "42", reply.json


async def test_what_the_compiler_made_is_no_output_and_cannot_be_changed(runner: Daemon) -> None:
    look = "ls; ls /mnt/build; touch /mnt/build/main 2>/dev/null || echo read-only"
    code = f'#include <stdlib.h>\nint main(void) {{ return system("{look}"); }}'
    reply = await runner.execute(code, language="c", name="only.c")
    assert reply.json["run"]["stdout"].split() == ["only.c", "main", "read-only"]
    assert reply.json["files"] == [] and reply.json["skipped"] == []


async def test_a_runtime_whose_binary_is_not_there_is_not_offered(
    launch: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "runtimes.toml"
    file.write_text(
        """
        [[runtime]]
        language = "python"
        binary = "/usr/bin/python3"
        version = ["/usr/bin/python3", "--version"]
        run = ["/usr/bin/python3", "{entry}"]
        hello = "print('hello')"
        [[runtime]]
        language = "missing"
        binary = "/usr/bin/not-installed"
        version = ["/usr/bin/not-installed", "--version"]
        run = ["/usr/bin/not-installed", "{entry}"]
        hello = "hello"
        [[runtime]]
        language = "broken"
        binary = "/bin/false"
        version = ["/bin/false"]
        run = ["/bin/false", "{entry}"]
        hello = "hello"
        """
    )
    daemon: Daemon = await launch(RUNNER_RUNTIMES=str(file))
    assert list(await offered(daemon)) == ["python"]
    for language in ("missing", "broken"):
        reply = await daemon.execute("x", language=language)
        assert (reply.status, reply.json["reason"]) == (400, "unknown_runtime")


async def test_a_program_that_is_not_there_is_told_apart_from_one_that_fails(
    launch: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "runtimes.toml"
    file.write_text(
        """
        [[runtime]]
        language = "gone"
        binary = "/bin/sh"
        version = ["/bin/echo", "1.0"]
        run = ["/usr/bin/gone-by-now", "{entry}"]
        hello = "hello"
        """
    )
    daemon: Daemon = await launch(RUNNER_RUNTIMES=str(file))
    reply = await daemon.execute("x", language="gone")
    run = reply.json["run"]
    assert reply.status == 200
    assert (run["outcome"]["kind"], run["outcome"]["fault"]) == ("command_not_found", "user")
    assert (run["code"], run["status"]) == (127, "RE")
