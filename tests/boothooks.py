"""Boot hooks for tests: a directory of small scripts, as an image brings them."""

from __future__ import annotations

from pathlib import Path

#: Appends a line to a file that every run of the hooks leaves longer.
COUNTS = "echo ran >> /mnt/data/ran"


def hooks(directory: Path, scripts: dict[str, str], *, mode: int = 0o755) -> str:
    """Writes the scripts (name → shell) and returns what RUNNER_BOOT_HOOKS takes."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    for name, script in scripts.items():
        path = directory / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(mode)
    return str(directory)
