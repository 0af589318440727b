"""Runs in a jail: tries each of [[protocol, address, port], ...] on stdin, prints what came of it.

"ok <answer>", the name of an errno, or "timeout" (UDP that is dropped or answered by nobody), and
after a slash the seconds it took. `resolve` asks the system's resolver for a name instead. An
argument is the patience in seconds, for those that are to be answered on a busy machine too.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

PATIENCE_S = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0


def attempt(target: list[str | int]) -> tuple[str, str]:
    protocol, address, port = str(target[0]), str(target[1]), int(target[2])
    begun = time.monotonic()
    try:
        came = resolve(address) if protocol == "resolve" else "ok " + talk(protocol, address, port)
    except TimeoutError:
        came = "timeout"
    except OSError as error:
        came = errno.errorcode.get(error.errno or 0, str(error))
    return f"{protocol}/{address}/{port}", f"{came}/{time.monotonic() - begun:.1f}"


def resolve(name: str) -> str:
    return "ok " + ",".join(sorted({info[4][0] for info in socket.getaddrinfo(name, 80)}))


def talk(protocol: str, address: str, port: int) -> str:
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    [(family, _, _, _, destination), *_] = socket.getaddrinfo(address, port, type=kind)
    with socket.socket(family, kind) as peer:
        peer.settimeout(PATIENCE_S)
        peer.connect(destination)
        peer.sendall(f"{protocol}/{address}/{port}\n".encode())
        return peer.recv(512).decode().strip()


def main() -> None:
    targets = json.load(sys.stdin)
    with ThreadPoolExecutor(64) as pool:
        print(json.dumps(dict(pool.map(attempt, targets))))


main()
