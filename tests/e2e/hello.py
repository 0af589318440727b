"""What `make run` prints once the daemon that it started serves: three lines to paste."""

from __future__ import annotations

import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from runner.settings import Settings, SettingsError

TIMEOUT = 60.0
#: Of a socket in /proc/net/tcp.
LISTENING = "0A"

LINES = """
Three lines to paste into another terminal:

  curl -s {url}/api/v2/execute {token}-H 'Content-Type: application/json' -H 'X-Runtime-Session-Id: me' -d '{{"language":"python","version":"*","files":[{{"name":"main.py","content":"open(\\"n.txt\\",\\"a\\").write(\\"turn\\\\n\\"); print(open(\\"n.txt\\").read())"}}]}}'

  curl -s {url}/session/checkpoint {token}-H 'X-Runtime-Session-Id: me' -o me.tar.gz && tar tvzf me.tar.gz

  curl -s {url}/session/restore {token}-H 'X-Runtime-Session-Id: me' -H 'Content-Type: application/x-gtar' --data-binary @me.tar.gz
"""  # noqa: E501 - a line to paste stays one line


def main(pid: int) -> int:
    """Waits until the process serves and is ready; says nothing if it does not come up."""
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError:
        return 1  # The daemon says so itself.
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and is_alive(pid):
        port = port_of(pid)
        url = f"http://{reached_at(settings.host)}:{port}"
        if port is not None and answers(f"{url}/health"):
            token = '-H "Authorization: Bearer $RUNNER_TOKEN" ' if settings.token else ""
            print(LINES.format(url=url, token=token))
            print(f"Or open {url}/console\n" if settings.console else "", end="", flush=True)
            return 0
        time.sleep(0.1)
    return 1


def is_alive(pid: int) -> bool:
    """Whether it is a process still."""
    return Path(f"/proc/{pid}").exists()


def port_of(pid: int) -> int | None:
    """Where this process listens, and no other that was there before it."""
    try:
        links = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return None  # It ends just now.
    own = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = row.split()[:10]
            if state == LISTENING and inode in own:
                return int(local.rpartition(":")[2], 16)
    return None


def reached_at(host: str) -> str:
    """The host of a URL that reaches a daemon which listens there, from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def answers(url: str) -> bool:
    """Whether it is 200 there."""
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
