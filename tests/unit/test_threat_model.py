"""THREAT_MODEL.md pairs threats with tests: those it names exist, and every attack is named."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.syntax import parsed

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "THREAT_MODEL.md").read_text("utf-8")
NAMED = frozenset(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE))


def functions_of(path: Path) -> set[str]:
    """The test functions of a file."""
    tree = parsed(path.read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node.name for node in ast.walk(tree) if isinstance(node, kinds))
    return {name for name in found if name.startswith("test_")}


def test_every_test_that_is_named_exists() -> None:
    missing = [
        f"{path}::{name}"
        for path, name in sorted(NAMED)
        if not (REPOSITORY / path).exists() or name not in functions_of(REPOSITORY / path)
    ]
    assert len(NAMED) > 50 and missing == []


def test_every_attack_is_named() -> None:
    security = sorted((REPOSITORY / "tests/security").glob("test_*.py"))
    attacks = {
        (str(path.relative_to(REPOSITORY)), name)
        for path in security
        for name in functions_of(path)
    }
    assert sorted(attacks - NAMED) == []


def test_every_threat_has_a_test() -> None:
    rows = [line for line in PAGE.partition("## Threats")[2].splitlines() if line.startswith("| ")]
    threats = [line for line in rows if not line.startswith("| threat |")]
    assert len(threats) > 40
    assert [line for line in threats if "::test_" not in line.split("|")[3]] == []
