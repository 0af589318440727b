"""What keeps a jail from being set up is a fact, told apart from all that a program can do."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from jail.facts import Ending, Facts
from jail.host import JailHost
from jail.process import Jail
from jail.profile import Bind, Network
from tests.jail.conftest import ProfileMaker, Runner


async def with_nsjail(host: JailHost, profile: ProfileMaker, nsjail: str | None) -> Facts:
    was, host.nsjail = host.nsjail, nsjail
    try:
        return await Jail(host, profile("true")).run()
    finally:
        host.nsjail = was


async def test_no_nsjail_at_all(host: JailHost, profile: ProfileMaker) -> None:
    facts = await with_nsjail(host, profile, None)
    assert (facts.started, facts.setup_failure) == (False, "nsjail_missing")


async def test_egress_where_no_network_was_opened(run: Runner) -> None:
    facts: Facts = await run("true", network=Network.EGRESS)
    assert (facts.started, facts.setup_failure) == (False, "network")


async def test_an_nsjail_that_is_gone(host: JailHost, profile: ProfileMaker) -> None:
    facts = await with_nsjail(host, profile, "/no/such/nsjail")
    assert (facts.started, facts.setup_failure) == (False, "nsjail_missing")
    assert facts.proven_empty and "exec" in facts.nsjail_log[-1]


@pytest.mark.parametrize("path", ["/bin/false", "/bin/true"])
async def test_an_nsjail_that_is_something_else(
    host: JailHost, profile: ProfileMaker, path: str
) -> None:
    facts = await with_nsjail(host, profile, path)
    assert (facts.started, facts.setup_failure, facts.wait_status) == (False, "nsjail", None)


async def test_an_nsjail_that_hangs_is_given_up(
    host: JailHost, profile: ProfileMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("jail.process.SETUP_TIMEOUT_S", 0.3)
    hanging = tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nsleep 60 & sleep 60\n")
    hanging.chmod(0o755)
    begun = time.monotonic()
    facts = await with_nsjail(host, profile, str(hanging))
    assert facts.ended_by is Ending.SETUP_TIMEOUT and not facts.started
    assert facts.proven_empty and time.monotonic() - begun < 2


async def test_a_bind_whose_source_is_missing(run: Runner, tmp_path: Path) -> None:
    missing = Bind(str(tmp_path / "missing"), "/mnt/data", writable=True)
    facts: Facts = await run("true", binds=(missing,))
    assert (facts.started, facts.setup_failure) == (False, "nsjail")
    assert os.waitstatus_to_exitcode(facts.nsjail_status or 0) == 255
    assert facts.nsjail_log


async def test_a_policy_that_does_not_compile(host: JailHost, profile: ProfileMaker) -> None:
    from dataclasses import replace

    was, host.fixed = host.fixed, replace(host.fixed, seccomp="POLICY {")
    try:
        facts = await Jail(host, profile("true")).run()
    finally:
        host.fixed = was
    assert (facts.started, facts.setup_failure) == (False, "nsjail")


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": ("a\x00b",)},
        {"argv": ()},
        {"env": {"A=B": "x"}},
        {"env": {"": "x"}},
        {"env": {"A": "x\x00"}},
    ],
)
async def test_what_no_exec_could_carry(run: Runner, changes: dict[str, object]) -> None:
    facts: Facts = await run("true", **changes)
    assert (facts.started, facts.setup_failure) == (False, "bad_profile")
    assert facts.proven_empty


async def test_a_refused_cgroup(
    host: JailHost, profile: ProfileMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "read-only")

    monkeypatch.setattr("jail.cgroup.Cgroup.set_limits", refuse)
    facts = await Jail(host, profile("true")).run()
    assert (facts.started, facts.setup_failure) == (False, "cgroup")


async def test_init_killed_from_outside_is_not_an_exit(
    host: JailHost, profile: ProfileMaker
) -> None:
    running = asyncio.Event()
    jail = Jail(host, profile("sleep", "60"), on_started=running.set)
    task = asyncio.create_task(jail.run())
    await running.wait()
    supervision = jail._supervision
    assert supervision is not None
    supervision.watch.kill_init()
    facts = await task
    assert facts.started and facts.wait_status is None and facts.ended_by is None
    assert facts.proven_empty


async def test_a_callback_that_fails_ends_the_jail_and_is_heard(
    host: JailHost, profile: ProfileMaker
) -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await Jail(host, profile("sleep", "60"), on_started=fail).run()
