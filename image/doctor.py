"""`sandbox-runner doctor`: what works here, what is degraded, and what to do about it.

The same checks as /health answers with, run once, for a person or as JSON.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Sequence

import msgspec

from image.checks import Check, Level, degraded, failed, machine, ok
from image.probe import UNTRIED, Bench, isolation, name_of, runtime
from image.runtimes import Runtime
from jail.errors import NetworkUnavailable
from jail.host import JailHost
from jail.profile import Network

_MARKS = {Level.OK: "ok      ", Level.DEGRADED: "degraded", Level.FAILED: "FAILED  "}


async def examine(
    *,
    nsjail: str | None,
    data_root: str,
    uid: int,
    gid: int,
    network: Network,
    runtimes: Sequence[Runtime],
) -> list[Check]:
    """Every check there is. Leaves nothing behind; a daemon that runs is not disturbed."""
    directory = tempfile.mkdtemp(prefix="sandbox-runner-doctor-")
    owner = f"doctor {os.getpid()}"
    try:
        host = await asyncio.to_thread(
            JailHost.open, nsjail=nsjail, runtime_dir=directory, owner=owner, uid=uid, gid=gid
        )
        try:
            bench = Bench(host, uid, gid, directory)
            checks = await asyncio.to_thread(machine, host, _existing(data_root))
            checks += await isolation(bench, directory)
            if network is Network.EGRESS:
                checks.append(await egress(host, owner))
            has_jail = all(check.ok for check in checks if check.name == "jail")
            checks += [
                await runtime(bench, each) if has_jail else degraded(name_of(each), *UNTRIED)
                for each in runtimes
            ]
        finally:
            await host.aclose()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if not runtimes:
        checks.append(failed("runtimes", "none is installed", "install one of the list"))
    return checks


async def egress(host: JailHost, owner: str) -> Check:
    """Whether the network of jails with egress can be set up; it is taken away again."""
    try:
        await host.open_network(owner)
    except NetworkUnavailable as error:
        remedy = "it takes nft, CAP_NET_ADMIN and a writable /proc/sys/net"
        return failed("egress", str(error), remedy)
    return ok("egress", "the rules are accepted")


def _existing(path: str) -> str:
    """The path, or what of it is there: the data root is only made when the daemon starts."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def table(checks: Sequence[Check]) -> str:
    """For a person: one line a check, and what to do below it."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{_MARKS[check.level]}  {check.name:{width}}  {check.detail}")
        if check.remedy is not None:
            lines.append(f"{'':8}  {'':{width}}  → {check.remedy}")
    return "\n".join(lines)


def as_json(checks: Sequence[Check]) -> str:
    """For a program: the checks, and whether all of them passed."""
    report = {"ok": all(check.ok for check in checks), "checks": list(checks)}
    return msgspec.json.format(msgspec.json.encode(report)).decode("utf-8")
