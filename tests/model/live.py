"""A real daemon, asked and hurt in the ways that `live_expected` foresees.

What lives here: what is done over HTTP and to the disk, and how what came of it is looked at.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.boothooks import COUNTS, hooks
from tests.harness import Daemon, Reply
from tests.leftovers import TEST_UID, settled
from tests.model.live_words import RAN, Answer, Run
from tests.mounts import tmpfs
from tests.terminals import attached, refused

SESSION = "the-session"
TERMINATE = "/aws/lambda-microvms/runtime/v1/terminate"
#: Seconds for what the daemon does after a client has left.
SETTLE = 10.0


@dataclass(frozen=True)
class Seen:
    """What there is to see of a session."""

    state: str
    incarnation: str | None
    dirty: str | None
    files: Mapping[str, str] | None
    primed: Mapping[str, str]
    surfaced: Mapping[str, str]


def answer(reply: Reply) -> Answer:
    """Which of its ways an archive is bad depends on the byte that is."""
    if reply.status in {200, 201}:
        return Answer.OK
    code = reply.json["error"]
    return Answer.CORRUPT if code.startswith("checkpoint_") else Answer(code)


class Live:
    """One daemon, and one data root."""

    def __init__(self, root: Path) -> None:
        self.daemon = Daemon(
            root / "data",
            {
                "RUNNER_BOOT_HOOKS": hooks(root / "boot.d", {"10-counts": COUNTS}),
                "RUNNER_SESSION_UID": str(TEST_UID),
                # An archive has to be good on the next disk too.
                "RUNNER_SIDECAR_KEY": "A" * 43,
                "RUNNER_LOCK_WAIT": "30s",
            },
        )

    async def request(self, method: str, path: str, expects: str | None, **more: Any) -> Reply:
        headers = dict(more.pop("headers", {}))
        if expects is not None:
            headers["X-Expected-Incarnation"] = expects
        return await self.daemon.request(method, path, session=SESSION, headers=headers, **more)

    # What a client asks

    async def boot(self, expects: str | None) -> Answer:
        return answer(await self.request("POST", "/session/boot", expects))

    async def execute(self, expects: str | None, run: Run, *, key: str | None = None) -> Reply:
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.request("POST", "/execute", expects, json=_body(run), headers=headers)

    async def execute_and_leave(self, expects: str | None, run: Run, *, key: str | None) -> None:
        """Leaves once the program has written its file, and before the result."""
        asked = asyncio.create_task(self.execute(expects, run, key=key))
        await self.wrote(run)
        asked.cancel()
        await asyncio.wait({asked})

    async def wrote(self, run: Run) -> None:
        """The program has added what it adds, which nobody else ever did."""
        path = self.daemon.data_root / "workspace" / run.writes
        async with asyncio.timeout(SETTLE):
            while not path.exists() or not path.read_bytes().endswith(run.adds):
                await asyncio.sleep(0.005)

    async def execute_without_input(self, expects: str | None) -> Answer:
        body = {"language": "bash", "version": "*", "files": [{"name": "s", "content": "true"}]}
        body["files"].append({"name": "x", "id": "never", "storage_session_id": "pushed"})
        return answer(await self.request("POST", "/execute", expects, json=body))

    async def put(self, expects: str | None, path: str, content: bytes) -> Answer:
        return answer(await self.request("PUT", f"/session/files/{path}", expects, data=content))

    async def attach(self, expects: str | None, *, is_let_in: bool) -> tuple[Answer, str]:
        """What a shell finds in the file that the boot hook writes."""
        headers = {} if expects is None else {"X-Expected-Incarnation": expects}
        if not is_let_in:
            _, body = await refused(self.daemon, SESSION, headers=headers)
            return Answer(body["error"]), ""
        async with attached(self.daemon, SESSION, headers=headers) as shell:
            return Answer.OK, await shell.run(f"cat {RAN}")

    async def checkpoint(self, expects: str | None) -> tuple[Answer, bytes]:
        reply = await self.request("GET", "/session/checkpoint", expects)
        return answer(reply), reply.body

    async def restore(
        self, expects: str | None, archive: bytes, *, media_type: str = "application/x-gtar"
    ) -> Answer:
        headers = {"Content-Type": media_type}
        reply = await self.request(
            "POST", "/session/restore", expects, data=archive, headers=headers
        )
        return answer(reply)

    async def begin_restore(self, expects: str | None, archive: bytes) -> asyncio.Task[Reply]:
        """A restore whose body never ends; it is under way when this returns."""

        async def half() -> AsyncIterator[bytes]:
            yield archive[: len(archive) // 2]
            await asyncio.Event().wait()

        headers = {"Content-Type": "application/x-gtar"}
        asked = asyncio.create_task(
            self.request("POST", "/session/restore", expects, data=half(), headers=headers)
        )
        await self.until(lambda state: state == "restoring")
        return asked

    async def terminate(self) -> Answer:
        return answer(await self.daemon.request("POST", TERMINATE))

    async def terminate_in_vain(self) -> Answer:
        """While something is mounted in the workspace, which nobody can remove."""
        with tmpfs(self.daemon.data_root / "workspace" / "held"):
            return await self.terminate()

    # What befalls it

    async def restart(self) -> None:
        await self.daemon.kill()
        await self.daemon.start(ready=False)

    async def die_under(self, asked: asyncio.Task[Any]) -> None:
        """The daemon dies while something is asked, and starts again."""
        await self.restart()
        await asyncio.wait({asked})
        asked.exception()

    async def disk_lost(self) -> None:
        await self.daemon.kill()
        shutil.rmtree(self.daemon.data_root)
        await self.daemon.start(ready=False)

    def workspace_lost(self) -> None:
        shutil.rmtree(self.daemon.data_root / "workspace")

    # What there is to see

    async def until(self, wanted: Any) -> None:
        async with asyncio.timeout(SETTLE):
            while not wanted((await self._session())["state"]):
                await asyncio.sleep(0.005)

    async def _session(self) -> dict[str, Any]:
        return dict((await self.daemon.get("/health")).json["session"])

    async def look(self, surfaced: Mapping[str, str]) -> Seen:
        """`surfaced` is expected: it is noted once a reply is out, so it is waited for."""
        told = await self._session()
        await settled(lambda: self._record().get("surfaced", {}) == surfaced, True)
        record = self._record()
        listed = await self.request("GET", "/session/files?sha256=1", None)
        files = (
            {each["path"]: each["sha256"] for each in listed.json["files"]}
            if listed.status == 200
            else None
        )
        primed = {path: each["sha256"] for path, each in record.get("primed", {}).items()}
        return Seen(
            state=told["state"],
            incarnation=told["incarnation"],
            dirty=told["dirty"],
            files=files,
            primed=primed,
            surfaced=record.get("surfaced", {}),
        )

    def _record(self) -> dict[str, Any]:
        path = self.daemon.data_root / "state" / "session.json"
        if not path.exists():
            return {}
        return dict(json.loads(path.read_bytes().partition(b"\n")[2]))


def _body(run: Run) -> dict[str, Any]:
    files = [{"name": run.script, "content": run.code}]
    return {"language": "bash", "version": "*", "files": files}
