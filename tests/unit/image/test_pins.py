"""What the image is built with is pinned, and is what pyproject.toml would take."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def test_every_dependency_is_pinned_at_a_version_that_would_do() -> None:
    lines = (ROOT / "image/requirements.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert all(re.fullmatch(r"[0-9.]+", version) for version in pins.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for text in project["dependencies"]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), text


@pytest.mark.parametrize("commit", ["", "main", "3.4", "0" * 39, "0" * 39 + "g"])
def test_nsjail_is_built_from_a_commit_that_cannot_be_moved(commit: str) -> None:
    built = subprocess.run(
        ["sh", ROOT / "image/build-nsjail", "https://repository.invalid", commit, "/nowhere"],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert built.returncode == 1 and "NSJAIL_COMMIT" in built.stderr
