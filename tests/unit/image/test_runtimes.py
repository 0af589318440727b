"""Runtimes: offered when they are really there, chosen by language and version."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from image.runtimes import Runtime, RuntimesError, load, select

ROW = """
[[runtime]]
language = "{language}"
aliases = ["{language}-alias"]
binary = "{binary}"
version = ["{binary}", "{said}"]
run = ["{binary}", "{{entry}}"]
hello = "hello"
"""


def runtime(language: str, version: str, *aliases: str) -> Runtime:
    return Runtime(
        language=language,
        aliases=aliases,
        version=version,
        run=("run", "{entry}"),
        compile=None,
        source_suffix=None,
        env=MappingProxyType({}),
        hello="",
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "runtimes.toml"


def write(file: Path, *rows: tuple[str, str, str]) -> str:
    file.write_text(
        "".join(ROW.format(language=name, binary=binary, said=said) for name, binary, said in rows)
    )
    return str(file)


def test_what_is_there_and_says_its_version_is_offered(file: Path) -> None:
    path = write(
        file,
        ("echo", "/bin/echo", "Echo version 1.22.333-beta (2.0)"),
        ("missing", "/usr/bin/not-there", "1.0"),
        ("failing", "/bin/false", "1.0"),
        ("silent", "/bin/echo", "no number"),
        ("directory", "/usr", "1.0"),
    )
    found = load(path)
    assert [(each.language, each.version) for each in found] == [("echo", "1.22.333")]
    assert found[0].names == ("echo", "echo-alias")


def test_the_files_of_the_image_are_well_formed_and_python_is_here() -> None:
    found = {each.language: each for each in load()}
    assert "python" in found and "bash" in found
    for each in found.values():
        assert each.run and each.version[0].isdigit()
        assert (each.compile is None) == (each.source_suffix is None)


@pytest.mark.parametrize(
    "text",
    [
        "[[runtime]]\nlanguage = 'x'",
        "[[runtime]]\nlanguage = 'x'\nbinary = '/bin/sh'\nversion = 3\nrun = ['x']\nhello = ''",
        "not toml",
        "[[runtime]]\nlanguage = 'x'\nbinary = '/bin/sh'\nversion = ['x']\nrun = ['x']\n"
        "hello = ''\ncompile = ['x']",
    ],
)
def test_a_malformed_file_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(RuntimesError):
        load(str(file))


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(RuntimesError):
        load("/nowhere/runtimes.toml")


SERVED = {
    "3.11.2": True,
    "3.11": True,
    "3.11.x": True,
    "3.x": True,
    "3.x.x": True,
    "3.*": True,
    "3": True,
    "*": True,
    "x": True,
    "3.1": False,
    "3.11.20": False,
    "3.11.2.0": False,
    "2.x": False,
    "": False,
    "3.": False,
    "latest": False,
}


@pytest.mark.parametrize("wanted", SERVED)
def test_which_version_a_request_means(wanted: str) -> None:
    assert runtime("python", "3.11.2").serves("python", wanted) is SERVED[wanted]


def test_the_newest_that_serves_is_chosen_by_number_and_not_by_text() -> None:
    offered = [runtime("p", version, "q") for version in ("3.9.1", "3.11.0", "3.10.9", "2.7.18")]
    for wanted, version in {"*": "3.11.0", "3.x": "3.11.0", "2": "2.7.18", "3.9": "3.9.1"}.items():
        chosen = select(offered, "q", wanted)
        assert chosen is not None and chosen.version == version
    assert select(offered, "p", "4") is None and select(offered, "r", "*") is None


def test_each_source_is_an_argument_of_its_own() -> None:
    made = Runtime(
        language="c",
        aliases=(),
        version="1",
        run=("{build}/main", "{entry}"),
        compile=("cc", "-o{build}/main", "{sources}"),
        source_suffix=".c",
        env=MappingProxyType({}),
        hello="",
    )
    assert made.compile_argv(["/a b.c", "/{build}.c"], build="/B") == (
        "cc",
        "-o/B/main",
        "/a b.c",
        "/{build}.c",
    )
    assert made.run_argv("/e", build="/B") == ("/B/main", "/e")
