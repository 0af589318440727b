"""Incarnation ids: never the same twice, whatever two clones of a snapshot share."""

from __future__ import annotations

import os
import re
import time

import pytest

from runner.session import incarnation
from runner.session.incarnation import mint


def test_it_has_its_form() -> None:
    assert re.fullmatch(r"inc_[0-9a-f]{32}", mint("s"))


def test_no_two_are_the_same() -> None:
    assert len({mint("s", vm_id="vm") for _ in range(1000)}) == 1000


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Two clones with the same randomness at the same moment."""
    monkeypatch.setattr(os, "urandom", bytes)
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 2)
    monkeypatch.setattr(incarnation, "_boot_id", lambda: "boot")
    return monkeypatch


def test_each_ingredient_alone_tells_two_apart(frozen: pytest.MonkeyPatch) -> None:
    base = mint("s", vm_id="vm")
    assert mint("s", vm_id="vm") == base, "nothing else is mixed in"
    others = [mint("t", vm_id="vm"), mint("s", vm_id="other"), mint("s")]
    frozen.setattr(incarnation, "_boot_id", lambda: "another boot")
    others.append(mint("s"))
    frozen.setattr(time, "time_ns", lambda: 3)
    others.append(mint("s", vm_id="vm"))
    frozen.setattr(os, "urandom", lambda size: b"r" * size)
    others.append(mint("s", vm_id="vm"))
    assert len({base, *others}) == 1 + len(others)


def test_ingredients_do_not_run_into_each_other(frozen: pytest.MonkeyPatch) -> None:
    assert mint("ab", vm_id="c") != mint("a", vm_id="bc")


def test_a_machine_without_a_boot_id_still_mints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incarnation, "BOOT_ID_FILE", "/nowhere")
    assert mint("s") != mint("s")
