"""Reseeding the kernel's generator, in processes that may do it and that may not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RESEED = """
import dataclasses, json, os, sys
from runner.vm.entropy import reseed
before = os.urandom(32)
step = reseed(vm_id=%r, given=%r)
after = os.getrandom(32, os.GRND_NONBLOCK)
print(json.dumps([step.done, step.detail, before != after]))
"""
WITHOUT_ADMIN = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")


def reseeded(*wrapper: str, vm_id: str | None = None, given: bytes = b"") -> tuple[bool, str, bool]:
    finished = subprocess.run(
        [*wrapper, sys.executable, "-c", RESEED % (vm_id, given)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        check=True,
        timeout=30,
    )
    done, detail, differs = json.loads(finished.stdout)
    return done, detail, differs


def test_the_generator_is_reseeded_and_gives_on() -> None:
    done, detail, differs = reseeded(vm_id="mvm-1", given=b"seed")
    assert (done, differs) == (True, True)
    assert detail.startswith("reseeded; mixed in: ")
    assert detail.endswith("request, vm id, clocks")


def test_only_what_there_was_is_said_to_be_mixed_in() -> None:
    _, detail, _ = reseeded()
    assert "request" not in detail
    assert "vm id" not in detail


def test_without_the_capability_it_is_not_done_and_the_generator_still_gives() -> None:
    done, detail, differs = reseeded(*WITHOUT_ADMIN, given=b"seed")
    assert (done, detail) == (False, "the generator could not be reseeded")
    assert differs


def test_no_entropy_is_credited() -> None:
    """What is mixed in may be known to others."""
    level = Path("/proc/sys/kernel/random/entropy_avail")
    before = int(level.read_text())
    reseeded(given=b"known" * 100)
    assert int(level.read_text()) <= max(before, 256)
