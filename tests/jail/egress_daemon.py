"""The daemon's side of the egress network in a process of its own, driven over stdin.

    egress_daemon.py OWNER

One command a line, one JSON answer a line. It runs inside a network namespace that a test made,
with an /etc/resolv.conf of the test's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from jail.errors import NetworkUnavailable
from jail.network import EgressNetwork, NetworkNamespace


async def serve(owner: str) -> None:
    network = await EgressNetwork.open(owner)
    say({"opened": True})
    namespaces: dict[int, NetworkNamespace] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        match line.split():
            case ["acquire"]:
                namespace = await network.acquire()
                namespaces[namespace.index] = namespace
                say(
                    {
                        "index": namespace.index,
                        "path": namespace.path,
                        "interface": namespace.interface,
                        "address4": str(namespace.address4),
                        "address6": namespace.address6 and str(namespace.address6),
                        "resolv_conf": namespace.resolv_conf,
                    }
                )
            case ["release", index]:
                await network.release(namespaces[int(index)])
                say({"released": True})
            case ["acquire-many", count]:
                many = await asyncio.gather(*(network.acquire() for _ in range(int(count))))
                say({"addresses": [str(each.address4) for each in many]})
            case ["cancel-acquire", milliseconds]:
                task = asyncio.create_task(network.acquire())
                await asyncio.sleep(float(milliseconds) / 1000)
                task.cancel()
                # One that was done already is the caller's, who has to release it.
                for done in await asyncio.gather(task, return_exceptions=True):
                    if isinstance(done, NetworkNamespace):
                        await network.release(done)
                say({"cancelled": task.cancelled()})
            case ["close"]:
                await network.close()
                say({"closed": True})


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(serve(sys.argv[1]))
    except NetworkUnavailable as error:
        say({"unavailable": str(error)})
