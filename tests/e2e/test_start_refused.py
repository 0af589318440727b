"""What keeps a daemon from starting is said by name, in a line, and nothing has been made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPOSITORY


def start_refused(data_root: Path, **environ: str) -> str:
    """What a daemon that does not start says; it exits by itself, with a status above 0."""
    base = {k: v for k, v in os.environ.items() if not k.startswith("RUNNER_")}
    own = {"RUNNER_DATA_ROOT": str(data_root), "RUNNER_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "runner", "serve"],
        cwd=REPOSITORY,
        env=base | own | environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode > 0, done
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr


#: All of them are in tests/unit/test_settings.py.
BAD_SETTINGS = {
    "RUNNER_DATA_ROOT": "relative/path",
    "RUNNER_MEMORY_LIMIT": "512MB",
    "RUNNER_SIDECAR_KEY": "my-secret",
    "RUNNER_NSJAIL": "/no/nsjail",
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_a_bad_setting_stops_the_start_and_is_named(tmp_path: Path, name: str) -> None:
    said = start_refused(tmp_path, **{name: BAD_SETTINGS[name]})
    assert f"{name} takes" in said and "my-secret" not in said
    assert not (tmp_path / "workspace").exists()


def test_an_open_address_needs_a_token(tmp_path: Path) -> None:
    said = start_refused(tmp_path, RUNNER_HOST="0.0.0.0")
    assert "RUNNER_TOKEN" in said and "RUNNER_TRUSTED_PROXY" in said


def test_a_runtimes_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    said = start_refused(tmp_path, RUNNER_RUNTIMES=str(tmp_path / "none.toml"))
    assert "RUNNER_RUNTIMES: " in said and "none.toml" in said
    (tmp_path / "bad.toml").write_text("[[runtime]]\nlanguage = 'x'\n")
    said = start_refused(tmp_path, RUNNER_RUNTIMES=str(tmp_path / "bad.toml"))
    assert "RUNNER_RUNTIMES: " in said and "binary" in said


def test_a_hooks_directory_that_cannot_be_listed_stops_the_start(tmp_path: Path) -> None:
    said = start_refused(tmp_path, RUNNER_BOOT_HOOKS=str(tmp_path / "none.d"))
    assert "RUNNER_BOOT_HOOKS: " in said and "none.d" in said
