"""Programs that are to end well and print what a table says, run beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.harness import Daemon


async def failures(
    daemon: Daemon, language: str, programs: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    """What came of those of `programs` (name → code, output) that did not; each gets `typed`."""

    async def one(code: str) -> Any:
        reply = await daemon.execute(code, language=language, name="main.py", stdin="typed")
        return reply.json["run"]

    ran = await asyncio.gather(*(one(code) for code, _ in programs.values()))
    return {
        name: run
        for (name, (_, printed)), run in zip(programs.items(), ran, strict=True)
        if (run["outcome"]["kind"], run["code"], run["stdout"].strip()) != ("exited", 0, printed)
    }
