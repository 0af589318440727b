"""Privileged path work has one door, `runner.workspace.tree`. This keeps it the only one.

A call that takes a path resolves every component of it as root, links included. In a directory
that the session's user can write, that is an exploit. So such calls are allowed only in the modules
listed here, each for the reason beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax import parsed

RUNNER = Path(__file__).parents[2] / "runner"

ANY = frozenset({"*"})
#: Module → which path calls it may use, and why no link of a user's can lead them astray.
ALLOWED: dict[str, tuple[frozenset[str], str]] = {
    "workspace/descent.py": (ANY, "the descent itself: every call has dir_fd and O_NOFOLLOW"),
    "workspace/tree.py": (ANY, "the door: one name in one open directory; the root by a setting"),
    "workspace/directories.py": (ANY, "makes one name in one open directory"),
    "workspace/treewalk.py": (ANY, "lists and looks by descriptor only"),
    "workspace/removal.py": (ANY, "unlinks by descriptor only"),
    "workspace/reserve.py": (
        frozenset({"os.open", "os.unlink"}),
        "constant names in the state directory, by its descriptor; no jail sees that directory",
    ),
    "workspace/dataroot.py": (
        frozenset({"os.makedirs"}),
        "makes the data root at start, a path from the settings that no user can write to",
    ),
    "checkpoint/writer.py": (
        frozenset({"os.open"}),
        "one name of the walk in the directory that the walk holds open, no-follow, non-blocking",
    ),
    "checkpoint/unpack.py": (frozenset({"os.utime"}), "sets the times of descriptors it holds"),
    "session/record.py": (
        frozenset({"os.open", "os.unlink", "os.rename"}),
        "constant names in the state directory, by its descriptor; no jail sees that directory",
    ),
    "guard.py": (frozenset({"open", "os.listdir"}), "the daemon's own: constants in /proc"),
    "vm/clock.py": (frozenset({"glob.glob", "os.open"}), "the hypervisor's clock in /dev"),
    "vm/entropy.py": (frozenset({"os.open"}), "the kernel's random devices in /dev"),
    "session/incarnation.py": (frozenset({"open"}), "the kernel's boot id: a constant in /proc"),
}

#: Functions of os and shutil that take a path. With a descriptor in its place they are harmless,
#: but reading which it is takes a human: they belong behind the door all the same.
FORBIDDEN = {
    "os": {
        "access", "chdir", "chflags", "chmod", "chown", "chroot", "lchown", "link", "listdir",
        "listxattr", "lstat", "makedirs", "mkdir", "mkfifo", "mknod", "open", "readlink", "remove",
        "removedirs", "removexattr", "rename", "renames", "replace", "rmdir", "scandir", "setxattr",
        "getxattr", "stat", "symlink", "truncate", "unlink", "utime", "walk", "fwalk",
    },
    "os.path": {"join", "exists", "isfile", "isdir", "islink", "realpath", "getsize", "abspath"},
    "io": {"open", "open_code", "FileIO"},
    "tempfile": {"*"},
    "shutil": {"*"},
    "glob": {"*"},
    "pathlib": {"*"},
    "aiofiles": {"*"},
    "tarfile": {"*"},
    "zipfile": {"*"},
}  # fmt: skip
# Harmless members of modules that are otherwise forbidden whole.
HARMLESS = {("shutil", "which"), ("pathlib", "PurePosixPath")}


def violations(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of each path call. Imports under another name are followed."""
    tree = parsed(source)
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = alias.name
                else:
                    names[alias.name.split(".")[0]] = alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                if forbidden(f"{node.module}.{alias.name}"):
                    yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            called = dotted(node, names)
            if called is not None and forbidden(called):
                yield node.lineno, called
        elif isinstance(node, ast.Name) and node.id == "open" and "open" not in names:
            # open(fd) is as good as os.fdopen, and that one says which it is.
            yield node.lineno, "open"


def dotted(node: ast.Attribute, names: dict[str, str]) -> str | None:
    parts = [node.attr]
    value = node.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    if not isinstance(value, ast.Name) or value.id not in names:
        return None
    return ".".join([names[value.id], *reversed(parts)])


def forbidden(name: str) -> bool:
    module, _, member = name.rpartition(".")
    if (module, member) in HARMLESS:
        return False
    return any(
        module == listed and (member in members or "*" in members)
        for listed, members in FORBIDDEN.items()
    )


def calls_of(path: Path) -> list[tuple[int, str]]:
    return list(violations(path.read_text()))


def test_path_calls_are_made_only_where_a_reason_is_given() -> None:
    found = []
    for path in sorted(RUNNER.rglob("*.py")):
        allowed, _ = ALLOWED.get(str(path.relative_to(RUNNER)), (frozenset(), ""))
        for line, name in calls_of(path):
            if not allowed & {name, "*"}:
                found.append(f"{path.relative_to(RUNNER)}:{line}: {name}")
    assert not found, "use runner.workspace.tree.Tree, or list the module with its reason"


def test_nothing_is_allowed_that_is_not_needed() -> None:
    for module, (allowed, _) in ALLOWED.items():
        used = {name for _, name in calls_of(RUNNER / module)}
        assert used if allowed == ANY else used == allowed, module


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os\nos.chown(p, 0, 0)", "os.chown"),
        ("import os as o\no.remove(p)", "os.remove"),
        ("import os.path\nos.path.join(a, b)", "os.path.join"),
        ("from os import path\npath.join(a, b)", "os.path.join"),
        ("from os.path import join", "os.path.join"),
        ("from os import rename as r", "os.rename"),
        ("import shutil\nshutil.rmtree(p)", "shutil.rmtree"),
        ("from pathlib import Path", "pathlib.Path"),
        ("import pathlib\npathlib.Path(p).write_text(t)", "pathlib.Path"),
        ("open(p)", "open"),
        ("import os\nf = os.open", "os.open"),
        ("import aiofiles\nasync def f(): await aiofiles.open(p)", "aiofiles.open"),
    ],
)
def test_the_lint_sees(source: str, expected: str) -> None:
    assert expected in [name for _, name in violations(source)]


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.fstat(fd); os.close(fd); os.read(fd, 1); os.fchmod(fd, 0)",
        "import shutil\nshutil.which('nsjail')",
        "tree.open(b'x'); entry.open(); tree.stat(())",
        "from os import fsencode",
    ],
)
def test_the_lint_lets_descriptors_pass(source: str) -> None:
    assert list(violations(source)) == []
