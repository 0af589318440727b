"""`make bench`: the table of ratios, and the daemon's memory growth meanwhile."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from tests.bench import execute, files, transfer, turns
from tests.bench.measuring import HEADER

#: The closest runner grows by 600 MiB; a checkpoint of any size has to fit in this.
MEMORY_GROWTH_MAX = 32 << 20


async def main() -> int:
    """Prints the table; 1 if a checkpoint's memory is not bounded."""
    root = Path(tempfile.mkdtemp(prefix="sandbox-runner-bench-", dir="/dev/shm"))
    try:
        print(HEADER)
        for row in await execute.rows(root):
            print(row)
        for row in await files.rows(root / "files"):
            print(row)
        moved = await transfer.transfers(root)
        after = await turns.turns(root / "turns")
        for row in (*moved.rows, *after.rows):
            print(row)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    growth = moved.memory_growth
    print(f"\nThe daemon grew by {growth / (1 << 20):.1f} MiB over all transfers.")
    lag = max(moved.loop_lag, after.loop_lag)
    print(f"Its event loop was never later than {lag * 1000:.1f} ms.")
    return 0 if growth <= MEMORY_GROWTH_MAX else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
