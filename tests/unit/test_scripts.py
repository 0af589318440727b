"""Every shell script of the project is one that shellcheck has nothing to say of."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
#: A container's or a VM's first lines are read by whoever debugs it.
ENTRYPOINT_LINES_MAX = 80


def scripts() -> list[str]:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    names = [name for name in tracked.stdout.split("\0") if name]
    return [name for name in names if _is_shell(ROOT / name)]


def _is_shell(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        first = file.readline(64)
    return first.startswith(b"#!") and first.rstrip().endswith((b"sh", b"bash"))


def test_shellcheck_is_content() -> None:
    found = scripts()
    assert {"entrypoint.sh", ".ci/run", "image/build", "tests/image/init"} <= set(found)
    checked = subprocess.run(
        ["shellcheck", *found], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


def test_the_entrypoint_fits_two_screens() -> None:
    assert (ROOT / "entrypoint.sh").read_text("utf-8").count("\n") < ENTRYPOINT_LINES_MAX
