"""The languages that are really here, read from runtimes.toml.

A runtime whose binary is missing, or that does not say its version, is not offered.
"""

from __future__ import annotations

import importlib.resources
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from image import quantity

#: Asking a binary for its version may not take longer than this many seconds.
VERSION_TIMEOUT = 10.0
#: What a version command gets to see: nothing of the daemon's own environment.
VERSION_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}


class RuntimesError(Exception):
    """The runtimes file is not as it should be; the message says where."""


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """A runtime's own ceilings, below the daemon's. Times in seconds, memory in bytes."""

    run_timeout: float | None = None
    compile_timeout: float | None = None
    memory: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class Runtime:
    """A language at one version. `argv` templates hold {entry}, {sources} and {build}."""

    language: str
    aliases: tuple[str, ...]
    version: str
    run: tuple[str, ...]
    compile: tuple[str, ...] | None
    source_suffix: str | None
    env: Mapping[str, str]
    #: A program that prints `hello`: the proof that the runtime works.
    hello: str
    limits: RuntimeLimits = RuntimeLimits()

    def run_argv(self, entry: str, *, build: str) -> tuple[str, ...]:
        """The command that runs the file at `entry`. Paths are as the jail sees them."""
        return tuple(word.replace("{entry}", entry).replace("{build}", build) for word in self.run)

    def compile_argv(self, sources: Sequence[str], *, build: str) -> tuple[str, ...]:
        """The command that compiles `sources`; each becomes an argument of its own."""
        filled: list[str] = []
        for word in self.compile or ():
            filled += sources if word == "{sources}" else [word.replace("{build}", build)]
        return tuple(filled)

    @property
    def names(self) -> tuple[str, ...]:
        """What a request may call it."""
        return (self.language, *self.aliases)

    def serves(self, language: str, version: str) -> bool:
        """Whether a request for this language and version (exact, `3.x`, `3`, `*`) means this."""
        return language in self.names and _version_matches(version, self.version)


def _version_matches(wanted: str, have: str) -> bool:
    """Piston's ways to say a version: exact, a prefix such as `3` or `3.x`, or `*`."""
    wanted_parts = wanted.split(".")
    while len(wanted_parts) > 1 and wanted_parts[-1] in ("x", "*"):
        wanted_parts.pop()
    return wanted_parts in (["*"], ["x"]) or have.split(".")[: len(wanted_parts)] == wanted_parts


def select(runtimes: Iterable[Runtime], language: str, version: str) -> Runtime | None:
    """The newest runtime that serves a request, or None."""
    serving = [each for each in runtimes if each.serves(language, version)]
    return max(serving, key=lambda each: _version_key(each.version), default=None)


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def load(path: str | None = None) -> tuple[Runtime, ...]:
    """Reads `path` (default: the file of this package) and keeps what is really installed.

    Raises `RuntimesError` when the file cannot be read or a row is not well-formed. Starts each
    binary once to learn its version, so it blocks: call it before serving.
    """
    try:
        if path is None:
            text = (importlib.resources.files("image") / "runtimes.toml").read_text("utf-8")
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        rows = tomllib.loads(text).get("runtime", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RuntimesError(f"cannot read the runtimes file: {error}") from error
    return tuple(runtime for row in rows if (runtime := _read(row)) is not None)


def _read(row: Mapping[str, Any]) -> Runtime | None:
    try:
        language = str(row["language"])
        binary, version_argv = str(row["binary"]), [str(each) for each in row["version"]]
        run = tuple(str(each) for each in row["run"])
        hello = str(row["hello"])
    except (KeyError, TypeError) as error:
        raise RuntimesError(f"a runtime lacks {error}") from error
    compile_argv = tuple(str(each) for each in row["compile"]) if "compile" in row else None
    if compile_argv is not None and "source_suffix" not in row:
        raise RuntimesError(f"{language} has a compile command but no source_suffix")
    if not os.access(binary, os.X_OK):
        return None
    version = _ask_version(version_argv)
    if version is None:
        return None
    return Runtime(
        language=language,
        aliases=tuple(str(each) for each in row.get("aliases", ())),
        version=version,
        run=run,
        compile=compile_argv,
        source_suffix=row.get("source_suffix"),
        hello=hello,
        env=MappingProxyType({str(k): str(v) for k, v in row.get("env", {}).items()}),
        limits=_read_limits(language, row.get("limits", {})),
    )


#: limit → how it is written.
_LIMITS: Mapping[str, Callable[[str], float]] = {
    "run_timeout": quantity.seconds,
    "compile_timeout": quantity.seconds,
    "memory": quantity.memory,
}


def _read_limits(language: str, row: Mapping[str, Any]) -> RuntimeLimits:
    values: dict[str, Any] = {}
    for name, value in row.items():
        try:
            if name == "pids":
                if not isinstance(value, int) or value < 1:
                    raise ValueError("a whole number above 0")
                values[name] = value
            elif name in _LIMITS:
                values[name] = _LIMITS[name](str(value))
            else:
                raise RuntimesError(f"{language} has an unknown limit {name}")
        except ValueError as error:
            raise RuntimesError(f"the limit {name} of {language} takes {error}") from None
    return RuntimeLimits(**values)


def _ask_version(argv: list[str]) -> str | None:
    try:
        answer = subprocess.run(
            argv,
            env=VERSION_ENV,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # It is there but does not work: the same as not there.
    match = re.search(rb"\d+(?:\.\d+)+", answer.stdout + answer.stderr)
    return match[0].decode("ascii") if match else None
