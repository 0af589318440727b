"""`make big`: a file of 5 GiB and 200,000 files, there and back through HTTP, in bounded memory.

Needs 16 GiB of room where it works: BIG_DIRECTORY, /dev/shm if unset.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.bench.measuring import loop_lag, peak, reset_peak
from tests.harness import Daemon, daemons

SESSION = "big"
KEY = {"X-Sidecar-Key": "K" * 43}
GIB = 1 << 30
MEMORY_GROWTH_MAX = 32 << 20
#: A whole one is written and read: `tests/harness` gives a request two minutes.
_CHUNK = 1 << 20


def one_large_file(top: Path) -> None:
    """5 GiB, more than 32 bits can count, which gzip's own length does; three quarters a hole."""
    with open(top / "large", "wb") as file:
        for gib in range(5):
            file.seek(gib * GIB)
            for _ in range(256):
                file.write(os.urandom(_CHUNK))
        file.truncate(5 * GIB)


def many_files(top: Path) -> None:
    """200,000 in 1,000 directories."""
    for directory in range(1000):
        (top / f"d{directory:04}").mkdir()
        for number in range(200):
            (top / f"d{directory:04}/f{number:03}").write_bytes(b"%d/%d" % (directory, number))


def digest(top: Path) -> str:
    """Of all names, bodies, modes and times."""
    total = hashlib.sha256()
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        total.update(f"{path.relative_to(top)} {status.st_mode} {status.st_mtime_ns}\n".encode())
        if path.is_file():
            with open(path, "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


async def there_and_back(root: Path, what: str, fill: Callable[[Path], None]) -> bool:
    """Fills, saves, restores on another daemon, compares; whether all is as it should be."""
    cap = {"RUNNER_CHECKPOINT_MAX_BYTES": "8GiB"}
    async with daemons(root, "first", "second", **cap) as (first, second):
        for daemon in (first, second):
            await daemon.execute("pass", session=SESSION)
        fill(first.data_root / "workspace")
        before = [reset_peak(daemon.pid) for daemon in (first, second)]
        began = time.monotonic()
        await save(first, root / "archive")
        saved = time.monotonic()
        restored = await second.restore(SESSION, sent(root / "archive"), headers=KEY)
        ended = time.monotonic()
        assert restored.status == 200, restored.body
        grown = [
            peak(each.pid) - start for each, start in zip((first, second), before, strict=True)
        ]
        lag = [await loop_lag(daemon) for daemon in (first, second)]
        same = digest(first.data_root / "workspace") == digest(second.data_root / "workspace")
        print(
            f"{what}: save {saved - began:.1f} s, restore {ended - saved:.1f} s, "
            f"archive {(root / 'archive').stat().st_size / GIB:.2f} GiB, "
            f"memory +{grown[0] >> 20} and +{grown[1] >> 20} MiB, "
            f"loop late by {max(lag) * 1000:.0f} ms, {'the same' if same else 'NOT THE SAME'}"
        )
        return same and max(grown) <= MEMORY_GROWTH_MAX


async def save(daemon: Daemon, path: Path) -> None:
    headers = KEY | {"X-Runtime-Session-Id": SESSION}
    async with daemon.client.get("/session/checkpoint", headers=headers) as response:
        assert response.status == 200, await response.text()
        with open(path, "wb") as file:
            async for chunk in response.content.iter_chunked(_CHUNK):
                file.write(chunk)


async def sent(path: Path) -> AsyncIterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


async def main() -> int:
    """1 if something was lost or memory grew."""
    root = Path(tempfile.mkdtemp(prefix="big-", dir=os.environ.get("BIG_DIRECTORY", "/dev/shm")))
    good = True
    for what, fill in (("a file of 5 GiB", one_large_file), ("200,000 files", many_files)):
        try:
            good &= await there_and_back(root, what, fill)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
