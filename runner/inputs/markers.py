"""Empty directories that came with earlier results: their markers, as the file server lists them.

A client names the files it wants back, and an empty directory has none: its `.dirkeep` lies in the
same storage session. A session's workspace keeps its directories by itself; this is for executions
in a throw-away one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from runner.errors import InvalidPath
from runner.execution.request import ReferencedFile
from runner.fileserver.client import FileServer
from runner.fileserver.retry import TransferFailed
from runner.workspace.paths import SafePath, refuse_conflicts

log = logging.getLogger(__name__)

DIRKEEP = ".dirkeep"
#: Storage sessions that are asked, and markers that are taken, for one execution.
SESSIONS_MAX = 8
MARKERS_MAX = 50


async def find(
    server: FileServer,
    fetched: Sequence[ReferencedFile],
    taken: Sequence[SafePath],
    *,
    grant: str | None,
) -> list[ReferencedFile]:
    """The markers beside the fetched files whose places are not `taken`.

    A listing that fails costs its directories and nothing else.
    """
    sessions = list(dict.fromkeys(file.storage_session_id for file in fetched))[:SESSIONS_MAX]
    listings = await asyncio.gather(*(_list(server, each, grant) for each in sessions))
    found: list[ReferencedFile] = []
    claimed = [("", path) for path in taken]
    for marker in (each for listing in listings for each in listing):
        try:
            refuse_conflicts([*claimed, ("", marker.path)])
        except InvalidPath:
            continue
        claimed.append(("", marker.path))
        found.append(marker)
    return found[:MARKERS_MAX]


async def _list(server: FileServer, session: str, grant: str | None) -> list[ReferencedFile]:
    try:
        objects = await server.list_objects(session, grant=grant)
    except TransferFailed as failed:
        log.warning("no markers of empty directories", extra={"why": failed.failure.value})
        return []
    markers = []
    for each in objects:
        # A listing by prefix may hold objects of a session whose name begins with this one's.
        if each.storage_session_id != session:
            continue
        try:
            path = SafePath.parse(each.name)
        except InvalidPath:
            continue
        if path.name == DIRKEEP.encode() and len(path.parts) > 1:
            markers.append(ReferencedFile(path, each.id, session, None))
    return markers[:MARKERS_MAX]
