"""A restore whose client, disk or VM goes away in the middle: in one process, on real files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.checkpoint.chain import Chain
from runner.errors import SessionBusy
from runner.session import session as session_module
from runner.session.adoption import adopt
from runner.session.checkpointing import Checkpointing
from runner.session.hold import Hold
from runner.session.lifecycle import Operation, State
from runner.session.record import Record
from runner.session.restoring import Restoring
from runner.session.session import Session
from runner.settings import Settings
from runner.workspace.dataroot import DataRoot, Owner
from runner.workspace.fingerprint import HashCache
from runner.workspace.reserve import Reserve

SESSION = "the-session"
PATIENCE_S = 10.0


@dataclass
class Vm:
    """What a daemon has of a session, without its jails."""

    data: DataRoot
    session: Session
    checkpointing: Checkpointing

    @property
    def paths(self) -> list[str]:
        return sorted(path.name for path in Path(self.data.workspace_source()).iterdir())

    async def provision(self) -> None:
        await asyncio.to_thread(self.data.make_workspace)

    async def put(self, name: str) -> None:
        async with self.session.hold(Operation.EXECUTE, provision=self.provision) as hold:
            Path(self.data.workspace_source(), name).write_text("x")
            hold.done()

    async def terminate(self) -> None:
        async def end_jails() -> None:
            """There are none."""

        await self.session.terminate(end_jails=end_jails, wipe=self.data.wipe_workspace)

    async def saved(self) -> bytes:
        async with (
            self.checkpointing.save(
                SESSION, expected_incarnation=None, given_key=None
            ) as checkpoint,
            contextlib.aclosing(checkpoint.stream()) as chunks,
        ):
            return b"".join([bytes(chunk) async for chunk in chunks])

    async def restore(self, archive: bytes, *, more: bool = False, commits: bool = True) -> None:
        async with self.checkpointing.restore(
            SESSION, expected_incarnation=None, given_key=None, more=more
        ) as restoring:
            restoring.begin_archive()
            await restoring.feed(archive)
            await restoring.end_archive()
            if commits:
                await restoring.commit()


@pytest.fixture
async def vm(fast_dir: Path) -> AsyncIterator[Vm]:
    """One with a session that has a file."""
    data = DataRoot.open(str(fast_dir / "root"), Owner(200000, 200000), reserve_bytes=1 << 20)
    session = adopt(data, lock_wait=PATIENCE_S)

    async def provision() -> None:
        await asyncio.to_thread(data.make_workspace)

    checkpointing = Checkpointing(
        data=data, session=session, settings=Settings(), cache=HashCache(), provision=provision
    )
    session.bind(SESSION)
    made = Vm(data, session, checkpointing)
    await made.put("kept")
    yield made
    await checkpointing.aclose()
    data.close()


class Stop:
    """A place where a thread stops until it may go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.may_go_on = threading.Event()

    def pass_by(self) -> None:
        self.reached.set()
        assert self.may_go_on.wait(PATIENCE_S)

    async def until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, PATIENCE_S)


def stop_before(patch: pytest.MonkeyPatch, owner: type, name: str) -> Stop:
    """Where `name` begins."""
    stop, function = Stop(), getattr(owner, name)

    def stopped(*args: object, **more: object) -> object:
        stop.pass_by()
        return function(*args, **more)

    patch.setattr(owner, name, stopped)
    return stop


@pytest.fixture
def short_of_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataRoot, "free_bytes", lambda _: 0)


@pytest.mark.usefixtures("short_of_room")
async def test_a_client_that_leaves_while_room_is_made_leaves_an_empty_session(
    vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = await vm.saved()
    giving = stop_before(monkeypatch, Reserve, "give_up")
    restoring = asyncio.create_task(vm.restore(archive))
    await giving.until_reached()
    restoring.cancel()
    giving.may_go_on.set()
    await asyncio.wait({restoring})
    assert (vm.session.state, vm.paths) == (State.FRESH, [])
    assert vm.data.reserve.is_whole


@pytest.mark.usefixtures("short_of_room")
async def test_a_disk_that_fails_while_room_is_made_leaves_an_empty_session(
    vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = await vm.saved()

    def broken(_: Reserve) -> bool:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(Reserve, "give_up", broken)
    with pytest.raises(OSError, match="broken"):
        await vm.restore(archive)
    assert (vm.session.state, vm.paths) == (State.FRESH, [])


async def test_a_terminate_waits_for_the_commit_of_a_sequence(
    vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what comes late of it is not written into the next session's record."""
    monkeypatch.setattr(session_module, "ENDING_GRACE", 0.05)
    archive = await vm.saved()
    exchanged = stop_before(monkeypatch, Hold, "replaced")
    restoring = asyncio.create_task(vm.restore(archive, more=True))
    await exchanged.until_reached()
    terminating = asyncio.create_task(vm.terminate())
    await asyncio.sleep(0.3)
    is_early = terminating.done()
    if is_early:
        vm.session.bind("other")
    exchanged.may_go_on.set()
    await asyncio.wait({restoring, terminating})
    assert restoring.exception() is None, "it was committed before it was wiped"
    assert terminating.exception() is None
    vm.session.bind("other")
    assert vm.session.record == Record(session="other", incarnation=vm.session.incarnation or "")
    assert (vm.session.state, vm.paths, is_early) == (State.FRESH, [], False)


async def test_a_sequence_that_is_ended_before_its_commit_commits_nothing(
    vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "ENDING_GRACE", 0.05)
    archive = await vm.saved()
    completing = stop_before(monkeypatch, Chain, "complete")
    replaced = []
    monkeypatch.setattr(Restoring, "_replace", lambda *_: replaced.append(True))
    restoring = asyncio.create_task(vm.restore(archive, more=True))
    await completing.until_reached()
    terminating = asyncio.create_task(vm.terminate())
    await asyncio.sleep(0.3)
    completing.may_go_on.set()
    with pytest.raises(SessionBusy):
        await restoring
    await terminating
    assert (vm.session.state, vm.paths, replaced) == (State.TERMINATED, [], [])


async def test_what_a_stopping_daemon_has_committed_stands(
    vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = await vm.saved()
    exchanged = stop_before(monkeypatch, Hold, "replaced")
    restoring = asyncio.create_task(vm.restore(archive, more=True))
    await exchanged.until_reached()
    stopping = asyncio.create_task(vm.checkpointing.aclose())
    await asyncio.sleep(0.1)
    exchanged.may_go_on.set()
    await stopping
    await restoring
    assert (vm.session.state, vm.paths) == (State.FRESH, ["kept"])
    assert vm.session.ledger.bound.restored
