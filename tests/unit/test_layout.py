"""The dependency rule between the packages, and the tools that hold the style."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.syntax import parsed

ROOT = Path(__file__).resolve().parent.parent.parent
#: package → what it must not import.
FORBIDDEN = {"jail": {"runner", "image"}, "image": {"runner"}, "runner": set()}


def imported(source: Path) -> set[str]:
    """The top-level packages that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(parsed(source.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_packages_import_only_what_the_layout_allows(package: str) -> None:
    sources = sorted((ROOT / package).rglob("*.py"))
    assert sources
    wrong = {
        str(source.relative_to(ROOT)): sorted(imported(source) & FORBIDDEN[package])
        for source in sources
        if imported(source) & FORBIDDEN[package]
    }
    assert wrong == {}


def test_the_daemon_does_not_import_its_tests() -> None:
    for package in FORBIDDEN:
        for source in (ROOT / package).rglob("*.py"):
            assert "tests" not in imported(source), source


@pytest.mark.parametrize(
    "command",
    [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]],
    ids=" ".join,
)
def test_the_tools_agree(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_has_grown_into_a_room_of_its_own() -> None:
    """STYLE: about 250 lines a file; at 300 there is a seam to be found."""
    long = {
        str(source.relative_to(ROOT)): lines
        for package in FORBIDDEN
        for source in (ROOT / package).rglob("*.py")
        if (lines := source.read_text("utf-8").count("\n")) > 300
    }
    assert long == {}
