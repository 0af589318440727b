"""What boot hooks leave in the workspace is set-up, and no output of the programs that run later.

So it counts as surfaced. What a restored workspace held before the hooks ran, and the client does
not have yet, is still to be delivered: only what is not as it was is set-up. All of it blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from runner.execution.outputs import collected
from runner.session.record import Record
from runner.workspace.collecting import collect
from runner.workspace.dataroot import DataRoot
from runner.workspace.fingerprint import HashCache
from runner.workspace.outputs import Caps

log = logging.getLogger(__name__)

#: Each is a line of the record, which is written anew several times per execution. Bytes, depth and
#: entries are bounded as in any collection; what is beyond a bound is an output like any other.
CAPS = Caps(files=10_000, empty_dirs=10_000, skipped=0)
NOTHING: Mapping[str, str] = MappingProxyType({})


def undelivered(data: DataRoot, record: Record, cache: HashCache) -> Mapping[str, str]:
    """Path → hash of every file that the client does not have."""
    try:
        with data.workspace() as tree:
            found = collect(tree, record.primed, record.surfaced, cache=cache, caps=CAPS)
    except OSError:
        log.exception("the workspace could not be looked through at a boot")
        return NOTHING
    deliverables = collected(found, record.primed, record.surfaced, ()).deliverables
    return {each.name: each.output.sha256 for each in deliverables}


def made(before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
    """What came to be between the two. Pure."""
    return {path: sha256 for path, sha256 in after.items() if before.get(path) != sha256}
