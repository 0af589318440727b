"""The container's HEALTHCHECK: exits 0 when /health answers 200. No curl in the image for this."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

#: The container runtime gives up after 5 s.
TIMEOUT = 4.0


def main() -> int:
    """The daemon listens on the container's own loopback whatever RUNNER_HOST is."""
    host = os.environ.get("RUNNER_HOST", "127.0.0.1")
    port = os.environ.get("RUNNER_PORT", "8080")
    reached = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host  # noqa: S104
    try:
        with urllib.request.urlopen(f"http://{reached}:{port}/health", timeout=TIMEOUT):
            return 0
    except (urllib.error.URLError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
