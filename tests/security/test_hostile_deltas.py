"""Deltas that nobody but who has the key can make, and who has it should not: all refused, wiped.

Each is sealed rightly and builds on the archive before it. A symlink of that one leads out.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from runner.checkpoint.limits import Limits
from runner.errors import RunnerError
from tests.unit.checkpoint import forge
from tests.unit.checkpoint.forge import ROOT, directory, file, hard_link, symlink
from tests.unit.checkpoint.kit import chained, look

STATE, NEXT = "5" * 64, "6" * 64
BASE = forge.sealed(
    ROOT,
    file(b"session/a", b"first"),
    directory(b"session/d/"),
    file(b"session/d/f", b"second"),
    symlink(b"session/out", b"../../canary"),
    state=STATE,
)


def head(*gone: bytes, base: str = STATE) -> bytes:
    body = base.encode() + b"\n" + b"".join(name + b"\x00" for name in gone)
    return file(b"runner-delta", body)


def tree_of(*lines: tuple[bytes, bytes, bytes, int, int]) -> str:
    """The digest of a tree, as the format's page has it."""
    return hashlib.sha256(b"".join(b"%b\x00%b\x00%b %o %d\n" % each for each in lines)).hexdigest()


def delta(*members: bytes, removed: int = 0, tree: str = "0" * 64, **changes: Any) -> bytes:
    sealed = {"base": STATE, "tree": tree, "removed": removed}
    said = {"state": NEXT, "delta": sealed, "entries": len(members) - 1} | changes
    return forge.sealed(*members, **said)


HEAD = head()
HOSTILE: dict[str, bytes] = {
    "unsafe delta: gone, out": delta(head(b"../canary"), ROOT, removed=1),
    "unsafe delta: gone, absolute": delta(head(b"/etc"), ROOT, removed=1),
    "unsafe delta: gone, empty": delta(head(b""), ROOT, removed=1),
    "unsafe delta: gone, dot": delta(head(b"d/./f"), ROOT, removed=1),
    "unsafe delta: gone twice": delta(head(b"a", b"a"), ROOT, removed=2),
    "unsafe delta: gone out of order": delta(head(b"d", b"a"), ROOT, removed=2),
    "unsafe delta: gone below what is gone": delta(head(b"d", b"d/f"), ROOT, removed=2),
    "unsafe delta: an open end": delta(file(b"runner-delta", STATE.encode() + b"\na"), ROOT),
    "unsafe delta: no state": delta(file(b"runner-delta", b"a\x00"), ROOT),
    "unsafe delta: an empty head": delta(file(b"runner-delta"), ROOT),
    "unsafe type: a head that is a link": delta(symlink(b"runner-delta", b"x"), ROOT),
    "unsafe name: a second head": delta(HEAD, ROOT, HEAD),
    "unsafe name: a head in the middle": delta(HEAD, ROOT, file(b"session/a"), HEAD),
    "unsafe order: no root": delta(HEAD, file(b"session/a")),
    "unsafe order: no directory": delta(HEAD, ROOT, file(b"session/d/f")),
    "unsafe order: through a symlink": delta(HEAD, ROOT, file(b"session/out/file", b"dead")),
    "unsafe link: out": delta(HEAD, ROOT, hard_link(b"session/x", b"../canary/file")),
    "unsafe link: through a symlink": delta(
        HEAD, ROOT, hard_link(b"session/x", b"session/out/file")
    ),
    "unsafe link: to a symlink": delta(HEAD, ROOT, hard_link(b"session/x", b"session/out")),
    "unsafe link: to what is gone": delta(
        head(b"a"), ROOT, hard_link(b"session/x", b"session/a"), removed=1
    ),
    "corrupt chain: gone through a symlink": delta(head(b"out/file"), ROOT, removed=1),
    "corrupt chain: gone and never there": delta(head(b"nowhere"), ROOT, removed=1),
    "corrupt chain: behind another state": delta(head(base=NEXT), ROOT),
    "corrupt chain: another result": delta(HEAD, ROOT, file(b"session/a", b"other")),
    "corrupt chain: of another incarnation": delta(HEAD, ROOT, incarnation="inc_2"),
    "unauthentic chain: a head of a full archive": delta(HEAD, ROOT, delta=None),
    "unauthentic chain: a seal without a head": forge.sealed(
        ROOT, delta={"base": STATE, "tree": "0" * 64, "removed": 0}
    ),
    "unauthentic chain: a seal of another base": delta(
        HEAD, ROOT, delta={"base": NEXT, "tree": "0" * 64, "removed": 0}
    ),
    "unauthentic chain: a seal of fewer names": delta(head(b"a"), ROOT, removed=0),
    "unauthentic digest: a seal of more members": delta(HEAD, ROOT, entries=2),
    "unauthentic sidecar: an unknown field": delta(HEAD, ROOT, more=1),
    "too_large removed: a head over its cap": delta(head(b"n" * 9000), ROOT, removed=1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_delta_is_refused_and_touches_nothing(fast_dir: Path, what: str) -> None:
    canary = fast_dir / "canary"
    canary.mkdir()
    (canary / "file").write_bytes(b"alive")
    before = look(canary)
    first = [BASE] if not what.endswith("without a head") else []
    with pytest.raises(RunnerError) as refusal:
        chained([*first, HOSTILE[what]], fast_dir / "staging", limits=Limits(gone_bytes=4096))
    kind, reason = what.partition(":")[0].split(" ")
    assert (refusal.value.code, refusal.value.reason) == (f"checkpoint_{kind}", reason)
    assert os.listdir(fast_dir / "staging") == []
    assert look(canary) == before


def test_a_member_replaces_a_symlink_and_never_goes_through_it(fast_dir: Path) -> None:
    (fast_dir / "canary").mkdir()
    result = tree_of(
        (b"session", b"", b"5", 0o755, 0),
        (b"session/a", b"", b"0", 0o644, 5),
        (b"session/d", b"session/a", b"1", 0, 0),
        (b"session/out", b"", b"5", 0o755, 0),
        (b"session/out/file", b"", b"0", 0o644, 4),
    )
    members = (
        hard_link(b"session/d", b"session/a"),
        directory(b"session/out/"),
        file(b"session/out/file", b"dead"),
    )
    chained([BASE, delta(HEAD, ROOT, *members, tree=result)], fast_dir / "staging")
    assert (fast_dir / "staging/restored/out/file").read_bytes() == b"dead"
    assert (fast_dir / "staging/restored/d").read_bytes() == b"first"
    assert list((fast_dir / "canary").iterdir()) == []
