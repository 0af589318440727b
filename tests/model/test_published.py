"""The checker against published figures: it must find what was found, and count the same."""

from __future__ import annotations

from tests.figures import Say
from tests.model.checker import check
from tests.model.published import Container, Phase, published

GUARDED = {
    "StartBoot",
    "FinishBoot",
    "BootLost",
    "AttachReady",
    "AttachGuarded",
    "Reconnect",
    "Sleep",
}


def test_the_guarded_lifecycle_has_the_published_size_and_both_invariants_hold(say: Say) -> None:
    report = check(published(guarded=True))
    say(f"published, guarded: {report.distinct} distinct states, depth {report.depth}")
    assert (report.distinct, report.depth) == (1453, 20)
    assert report.holds
    assert set(report.taken) == GUARDED


def test_the_unguarded_lifecycle_fails_in_the_published_five_states(say: Say) -> None:
    report = check(published(guarded=False))
    say(f"published, unguarded: fails in {len(report.trace)} states: {' '.join(report.actions)}")
    assert report.violated == "NoAttachWithoutSetup"
    assert report.actions == ("StartBoot", "FinishBoot", "Sleep", "AttachWakesFresh")
    last = report.trace[-1].state
    assert last.container is Container.FRESH
    assert any(client.phase is Phase.ATTACHED for client in last.clients)
