"""TLC on docs/spec: a second checker, written by others, must come to the same figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model import tlc
from tests.model.checker import check
from tests.model.conftest import Say
from tests.model.published import published

pytestmark = pytest.mark.skipif(tlc.missing() is not None, reason=str(tlc.missing()))


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
def test_tlc_agrees_on_the_published_lifecycle(guarded: bool, tmp_path: Path, say: Say) -> None:
    config = "PublishedGuarded" if guarded else "PublishedUnguarded"
    theirs = tlc.run("Published", config, tmp_path)
    ours = check(published(guarded=guarded))
    say(f"TLC, {config}: {theirs.distinct} distinct states, depth {theirs.depth}")
    assert theirs.violated == ours.violated
    assert theirs.actions == ours.actions
    if ours.holds:
        # A search that stops at a violation has counted what it happened to see first.
        assert (theirs.distinct, theirs.depth) == (ours.distinct, ours.depth)
