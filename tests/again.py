"""Runs the files of what has failed once more, one after the other and each whole.

    python -m tests.again [PYTEST ARGUMENT]...

Whole, for a fixture that finds something left behind fails the last test of its file, whichever of
them left it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

#: Of pytest's cacheprovider: the node ids of failures, of setup and teardown too.
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> None:
    """Becomes pytest; exits with 1 where nothing is known to have failed by itself."""
    failed = json.loads(FAILED.read_text("utf-8")) if FAILED.exists() else {}
    files = sorted({name.partition("::")[0] for name in failed})
    if not files:
        sys.exit("the run failed, and no test of it")
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:], *files])


if __name__ == "__main__":
    main()
