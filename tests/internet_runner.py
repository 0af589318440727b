"""A daemon on an internet of the test's own, and a client that reaches it there."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.client import REQUEST_TIMEOUT
from tests.harness import Daemon
from tests.jail.internet import Internet
from tests.leftovers import TEST_UID

#: Another server of the test's own has 8080.
RUNNER_PORT = 8090
TOKEN = "of-the-control-plane"
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread is in that network namespace while the block runs; nothing may wait in it."""
    with open("/proc/thread-self/ns/net", "rb") as home, open(namespace, "rb") as there:
        if _libc.setns(there.fileno(), _CLONE_NEWNET) == -1:
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            _libc.setns(home.fileno(), _CLONE_NEWNET)


class InternetRunner(Daemon):
    """A daemon in the host's namespace, listening on every IPv4 address of it."""

    def __init__(self, internet: Internet, data_root: Path, **environ: str) -> None:
        bind = f'mount --bind {internet.resolv_conf} /etc/resolv.conf && exec "$@"'
        self._namespace = internet.host.namespace
        super().__init__(
            data_root,
            {
                "RUNNER_NETWORK": "egress",
                "RUNNER_SESSION_UID": str(TEST_UID),
                "RUNNER_HOST": "0.0.0.0",
                "RUNNER_PORT": str(RUNNER_PORT),
                "RUNNER_TOKEN": TOKEN,
                # The probe has a thread for each attempt.
                "RUNNER_PIDS_LIMIT": "128",
                "RUNNER_SPARE_JAILS": "0",
            }
            | environ,
            wrapper=(
                *("nsenter", f"--net={self._namespace}"),
                *("unshare", "--mount", "sh", "-c", bind, "sh"),
            ),
        )

    def open(self, url: str, *, token: str | None = None) -> None:
        """Its sockets are made in the daemon's namespace, and stay in it wherever we are."""
        self.url = url.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")
        self._client = aiohttp.ClientSession(
            self.url,
            connector=aiohttp.TCPConnector(socket_factory=self._socket),
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT),
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

    def _socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        with inside(self._namespace):
            return socket.socket(family, kind, protocol)


def here() -> str:
    """The network namespace that this process is in."""
    return os.readlink("/proc/self/ns/net")
