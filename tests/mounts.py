"""File systems of a test's own: small ones that fill up, and ones that are in the way.

Each is unmounted at the end, lazily: what still uses it is another assertion's business.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def tmpfs(where: Path, *, size: int = 64 << 10, inodes: int | None = None) -> Iterator[Path]:
    """One of `size` bytes at `where`, which is made if it is not there."""
    limits = f"size={size},mode=755" + (f",nr_inodes={inodes}" if inodes is not None else "")
    with _mounted("-t", "tmpfs", "-o", limits, "none", at=where):
        yield where


@contextmanager
def ext4(where: Path, *, size: int, inodes: int | None = None) -> Iterator[Path]:
    """One of `size` bytes at `where`, none of them kept for root alone, without a journal."""
    count = () if inodes is None else ("-N", str(inodes))
    with tempfile.NamedTemporaryFile() as image:
        image.truncate(size)
        command = ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", *count, image.name]
        subprocess.run(command, check=True)
        with _mounted("-o", "loop", image.name, at=where):
            yield where


@contextmanager
def bound(source: Path, where: Path) -> Iterator[Path]:
    """`source` once more at `where`: a mount point that no st_dev gives away."""
    with _mounted("--bind", str(source), at=where):
        yield where


@contextmanager
def _mounted(*how: str, at: Path) -> Iterator[None]:
    at.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", *how, str(at)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)
