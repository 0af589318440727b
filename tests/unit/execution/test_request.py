"""From a request to a plan: everything that can be refused is refused here."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from image.runtimes import Runtime
from jail.profile import Network
from runner.errors import BadRequest, LimitExceeded, RunnerError
from runner.execution.profile import BUILD, WORKSPACE, Identity, Place, compile_profile, run_profile
from runner.execution.request import (
    STRING_BYTES_MAX,
    STRINGS_BYTES_MAX,
    STRINGS_MAX,
    Plan,
    new_id,
    plan,
)
from runner.settings import Settings
from runner.wire import ExecuteRequest

PYTHON = Runtime(
    language="python",
    aliases=("py",),
    version="3.11.2",
    run=("/usr/bin/python3", "{entry}"),
    compile=None,
    source_suffix=None,
    env=MappingProxyType({"OF_RUNTIME": "1", "BOTH": "runtime"}),
    hello="",
)
C = Runtime(
    language="c",
    aliases=(),
    version="12.2.0",
    run=("{build}/main",),
    compile=("/usr/bin/gcc", "-o", "{build}/main", "{sources}", "-lm"),
    source_suffix=".c",
    env=MappingProxyType({}),
    hello="",
)
SETTINGS = Settings()
IDENTITY = Identity(1000, 1001, Network.NONE)


def planned(*files: dict[str, Any], **fields: Any) -> Plan:
    body = {"language": "python", "files": list(files) or [{"content": ""}]} | fields
    request = msgspec.convert(body, ExecuteRequest)
    return plan(request, runtimes=(PYTHON, C), settings=SETTINGS, cpus=2)


def named(name: str, content: str = "") -> dict[str, Any]:
    return {"name": name, "content": content}


def test_the_first_file_is_the_entry_and_nameless_ones_are_named_by_place() -> None:
    made = planned({"content": "a"}, {"content": "b"})
    assert [str(file.path) for file in made.inline] == ["file0.code", "file1.code"]
    assert str(made.entry) == "file0.code"


def test_a_nameless_file_of_a_compiled_language_is_one_that_its_compiler_takes() -> None:
    made = planned({"content": "a"}, named("data"), {"content": "b"}, language="c")
    assert [str(path) for path in made.sources] == ["file0.c", "file2.c"]
    assert str(made.entry) == "file0.c"


def test_content_is_decoded() -> None:
    made = planned(
        {"name": "t", "content": "häl"},
        {"name": "b", "content": "AAH/", "encoding": "base64"},
        {"name": "h", "content": "00ff", "encoding": "hex"},
    )
    assert [f.content for f in made.inline] == ["häl".encode(), b"\x00\x01\xff", b"\x00\xff"]


@pytest.mark.parametrize("content", ["A", "AAA", "AA=A", "AA==AA==x", "Ä", "A A=", "AAH/\n"])
def test_base64_is_taken_strictly(content: str) -> None:
    with pytest.raises(BadRequest) as refused:
        planned({"name": "b", "content": content, "encoding": "base64"})
    assert (refused.value.field, refused.value.reason) == ("files[0].content", "encoding")


def test_a_file_by_reference_is_kept_apart() -> None:
    made = planned(
        {"name": "d/in.csv", "id": "i", "storage_session_id": "s"}, named("main.py", "pass")
    )
    assert [str(file.path) for file in made.referenced] == ["d/in.csv"]
    assert str(made.entry) == "main.py", "what runs is what came with the request"


def test_strings_are_counted_in_bytes_and_together() -> None:
    planned(args=["x" * STRING_BYTES_MAX])
    with pytest.raises(LimitExceeded):
        planned(args=["ä" * (STRING_BYTES_MAX // 2 + 1)])
    many = {"args": ["x" * 100_000] * (STRINGS_BYTES_MAX // 100_000)}
    planned(**many)
    with pytest.raises(LimitExceeded) as refused:
        planned(**many, env_vars={"V": "x" * 100_000})
    assert refused.value.field == "env_vars"


@pytest.mark.parametrize("field", ["args", "env_vars"])
def test_strings_are_counted_one_by_one_too(field: str) -> None:
    def some(count: int) -> dict[str, object]:
        names = [f"{number:x}" for number in range(count)]
        return {field: [""] * count if field == "args" else dict.fromkeys(names, "")}

    planned(**some(STRINGS_MAX))
    with pytest.raises(LimitExceeded) as refused:
        planned(**some(STRINGS_MAX + 1))
    assert (refused.value.field, refused.value.reason) == (field, "too_many_strings")


def test_the_limits_are_what_is_asked_up_to_the_ceilings() -> None:
    made = planned(run_timeout=5_000, run_memory_limit=8 << 20, run_cpu_time=100)
    limits = made.run_limits
    assert (limits.wall_ms, limits.cpu_ms, limits.memory_bytes) == (5_000, 100, 8 << 20)
    ceilings = planned().run_limits
    assert (ceilings.wall_ms, ceilings.memory_bytes) == (30_000, 512 << 20)
    assert (ceilings.pids, ceilings.output_bytes) == (64, 1 << 20)


def test_an_id_is_never_the_same() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000 and {len(each) for each in ids} == {21}


def test_the_session_of_the_outputs_is_as_asked_or_new() -> None:
    assert planned(output_session_id="o", session_id="s").output_session_id == "o"
    assert planned(session_id="s").output_session_id == "s"
    assert planned().output_session_id != planned().output_session_id


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_decoding_error(raw: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        msgspec.json.decode(raw, type=ExecuteRequest)


_NAMES = st.text(max_size=12) | st.sampled_from(["a", "a/b", "../x", "/x", "a//b", "\0", "a/./b"])


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "name": _NAMES,
                "content": st.text(max_size=8),
                "encoding": st.sampled_from(["utf8", "base64", "hex"]),
                "id": st.text(min_size=1, max_size=3),
                "storage_session_id": st.text(min_size=1, max_size=3),
            },
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_any_request_is_a_safe_plan_or_a_named_refusal(
    files: list[dict[str, Any]], args: list[str], env: dict[str, str]
) -> None:
    try:
        made = planned(*files, args=args, env_vars=env)
    except RunnerError as refused:
        assert refused.status == 400 and refused.field
        return
    for file in (*made.inline, *made.referenced):
        assert not {b"", b".", b".."} & set(file.path.parts)
    assert not any("\0" in string for string in (*made.args, *made.env, *made.env.values()))


def test_a_profile_runs_the_entry_by_its_absolute_path() -> None:
    made = planned(named("-c.py"), args=["-x"], stdin="in\n")
    profile = run_profile(made, Place("/host/w", None), IDENTITY)
    assert profile.argv == ("/usr/bin/python3", f"{WORKSPACE}/-c.py", "-x")
    assert (profile.cwd, profile.stdin) == (WORKSPACE, b"in\n")
    assert (profile.uid, profile.gid, profile.network) == (1000, 1001, Network.NONE)
    assert [(b.source, b.target, b.writable) for b in profile.binds] == [
        ("/host/w", WORKSPACE, True)
    ]


def test_the_requests_environment_comes_last() -> None:
    made = planned(env_vars={"BOTH": "request", "HOME": "/tmp"})
    env = run_profile(made, Place("/w", None), IDENTITY).env
    assert (env["OF_RUNTIME"], env["BOTH"], env["HOME"]) == ("1", "request", "/tmp")
    assert env["PATH"] == "/usr/local/bin:/usr/bin:/bin"


def test_the_compiler_gets_the_sources_and_may_write_the_build_the_run_may_not() -> None:
    made = planned(
        named("-m.c"), named("d/x.c"), named("x.h"), language="c", stdin="in", args=["a"]
    )
    place = Place("/w", "/b")
    compiling = compile_profile(made, place, IDENTITY)
    sources = (f"{WORKSPACE}/-m.c", f"{WORKSPACE}/d/x.c")
    assert compiling.argv == ("/usr/bin/gcc", "-o", f"{BUILD}/main", *sources, "-lm")
    assert compiling.stdin == b"" and compiling.limits.wall_ms == 10_000
    running = run_profile(made, place, IDENTITY)
    assert running.argv == (f"{BUILD}/main", "a")
    writable = [{b.target: b.writable for b in each.binds}[BUILD] for each in (compiling, running)]
    assert writable == [True, False]


def test_without_a_source_of_its_suffix_the_compiler_gets_the_entry() -> None:
    made = planned(named("main"), language="c")
    assert f"{WORKSPACE}/main" in compile_profile(made, Place("/w", "/b"), IDENTITY).argv
