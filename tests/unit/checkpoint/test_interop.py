"""What we write is a tar.gz like any other: GNU tar lists and unpacks it, names and all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.unit.checkpoint.kit import look, saved


def fill(top: Path) -> None:
    """Everything whose encoding is not plain."""
    (top / "directory").mkdir(parents=True)
    (top / "directory/file").write_bytes(b"body")
    os.link(top / "directory/file", top / "hard link")
    os.symlink("/etc/passwd", top / "symlink")
    os.symlink("t" * 300, top / "far symlink")
    (top / ("long" * 60)).write_bytes(b"long name")
    (top / ("long" * 30)).mkdir()
    (top / ("long" * 30) / ("er" * 100)).write_bytes(b"longer")
    (top / "déjà vu").write_bytes(b"UTF-8")
    Path(os.fsdecode(os.fsencode(top) + b"/\xff\xfe")).write_bytes(b"not UTF-8")
    (top / "new\nline").write_bytes(b"x")
    for name, mtime_ns in (("old", -1_500_000_001), ("directory", 987_654_321_123_456_789)):
        (top / name).touch()
        os.utime(top / name, ns=(0, mtime_ns))
    (top / "mode").touch()
    (top / "mode").chmod(0o4711)


def test_gnu_tar_lists_and_unpacks_it(fast_dir: Path) -> None:
    workspace, archive, out = fast_dir / "workspace", fast_dir / "archive.tar.gz", fast_dir / "out"
    fill(workspace)
    archive.write_bytes(saved(workspace))
    out.mkdir()
    environ = {**os.environ, "LC_ALL": "C"}
    listing = subprocess.run(
        ["tar", "-tzf", str(archive), "--quoting-style=escape"],
        check=True, capture_output=True, text=True, env=environ,
    )  # fmt: skip
    names = listing.stdout.splitlines()
    assert names[0] == "session/"
    assert names[-1] == "runner-sidecar.json"
    assert r"session/\377\376" in names
    subprocess.run(
        ["tar", "-xpzf", str(archive), "-C", str(out)], check=True, env=environ, capture_output=True
    )
    (workspace / "mode").chmod(0o711)
    assert look(out / "session") == look(workspace)


def test_gunzip_says_it_is_whole(fast_dir: Path) -> None:
    (fast_dir / "workspace").mkdir()
    (fast_dir / "archive.gz").write_bytes(saved(fast_dir / "workspace"))
    subprocess.run(["gzip", "-t", str(fast_dir / "archive.gz")], check=True)
