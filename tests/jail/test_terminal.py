"""A command on a terminal of the jail's own."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from jail.facts import Ending, Facts
from jail.host import JailHost
from jail.process import Jail
from jail.profile import WindowSize
from jail.spawn import Descriptor
from tests.jail.conftest import UID, ProfileMaker

SIZE = WindowSize(columns=91, rows=23)


class Seat:
    """The daemon's end of one terminal."""

    jail: Jail

    def __init__(self) -> None:
        self.seen = b""
        self.terminal = Descriptor(-1)
        self.started = asyncio.Event()
        self.run: asyncio.Task[Facts]

    def on_started(self) -> None:
        self.terminal = self.jail.take_terminal()
        self.started.set()

    def type(self, text: str) -> None:
        os.write(self.terminal.number, text.encode())

    async def until(self, wanted: str) -> str:
        """What is on the screen, once it shows `wanted`."""
        async with asyncio.timeout(5):
            while wanted.encode() not in self.seen:
                self.take()
                await asyncio.sleep(0.005)
        return self.seen.decode("utf-8", "replace")

    def take(self) -> bool:
        """Reads what there is; False once the other end is closed for good."""
        try:
            self.seen += os.read(self.terminal.number, 65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


Opener = Callable[..., contextlib.AbstractAsyncContextManager[Seat]]


@pytest.fixture
def seat(host: JailHost, profile: ProfileMaker) -> Opener:
    """Starts a command on a terminal; it is ended with the block."""

    @contextlib.asynccontextmanager
    async def open_seat(*argv: str, **changes: object) -> AsyncIterator[Seat]:
        wanted = replace(profile(*argv, **changes), terminal=SIZE)
        taken = Seat()
        taken.jail = jail = Jail(host, wanted, on_started=taken.on_started)
        taken.run = asyncio.create_task(jail.run())
        try:
            async with asyncio.timeout(5):
                await taken.started.wait()
            yield taken
        finally:
            jail.end(Ending.CANCELLED)
            facts = await taken.run
            taken.terminal.close()
            assert facts.proven_empty

    return open_seat


async def test_the_command_leads_a_session_on_a_named_terminal_of_that_size(seat: Opener) -> None:
    # Of /proc/PID/stat (proc(5)): pid, session, and the controlling terminal's device number.
    look = "read pid _ _ _ _ session tty _ < /proc/$$/stat; echo $pid $session $tty"
    async with seat("sh", "-c", f"tty; stty size; {look}; id -u; sleep 9") as at:
        screen = await at.until(f"{UID}\r\n")
    name, size, process, _ = screen.splitlines()
    assert name == "/dev/pts/0"
    assert size == "23 91"
    pid, leader, terminal = process.split()
    assert (pid == leader, int(terminal)) == (True, os.makedev(136, 0))


async def test_typed_control_c_interrupts_and_the_exit_status_is_the_commands(seat: Opener) -> None:
    async with seat("sh", "-c", "trap 'exit 7' INT; echo go; while :; do sleep 0.05; done") as at:
        await at.until("go")
        at.type("\x03")
        facts = await asyncio.wait_for(at.run, 5)
        assert facts.wait_status == 7 << 8
        assert facts.ended_by is None


async def test_jobs_are_stopped_and_continued(seat: Opener) -> None:
    async with seat("bash", "--norc", "-i", env={"PATH": "/usr/bin:/bin", "PS1": "$ "}) as at:
        await at.until("$ ")
        at.type("sleep 30\r")
        await at.until("sleep 30\r\n")
        await asyncio.sleep(0.2)
        at.type("\x1a")
        screen = await at.until("Stopped")
        assert "no job control" not in screen
        at.type("bg; jobs -r; kill %1; wait; exit 3\r")
        facts = await asyncio.wait_for(at.run, 5)
        assert facts.wait_status == 3 << 8


async def test_a_new_size_reaches_the_command(seat: Opener) -> None:
    script = "trap 'stty size; exit' WINCH; echo go; while :; do sleep 0.05; done"
    async with seat("sh", "-c", script) as at:
        await at.until("go")
        size = struct.pack("=HHHH", 40, 132, 0, 0)
        fcntl.ioctl(at.terminal.number, termios.TIOCSWINSZ, size)
        await at.until("40 132")


async def test_the_master_is_the_daemons_alone(seat: Opener) -> None:
    """A program that held it could type into its own terminal, and would keep it from closing."""
    async with seat("sh", "-c", "trap '' HUP; ls -l /proc/*/fd 2>/dev/null; echo done") as at:
        screen = await at.until("done")
        await at.run
        assert "ptmx" not in screen
        while at.take():
            await asyncio.sleep(0.005)


async def test_closing_it_hangs_the_command_up(seat: Opener) -> None:
    async with seat("sh", "-c", "echo go; sleep 30") as at:
        await at.until("go")
        at.terminal.close()
        facts = await asyncio.wait_for(at.run, 5)
        assert facts.wait_status == 1


async def test_a_command_without_a_terminal_has_none(run: Callable[..., object]) -> None:
    facts = await run("sh", "-c", "tty; ls /dev/ptmx /dev/pts 2>&1")  # type: ignore[misc]
    assert facts.stdout.kept.startswith(b"not a tty")
    assert facts.stdout.kept.count(b"No such file") == 2


async def test_a_frozen_jail_stands_still_and_goes_on(seat: Opener) -> None:
    count = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.001; done"
    async with seat("sh", "-c", count) as at:
        await at.until("20\r\n")
        async with at.jail.frozen() as frozen:
            assert frozen
            at.take()
            seen = at.seen
            await asyncio.sleep(0.1)
            at.take()
            assert at.seen == seen
        async with asyncio.timeout(5):
            while at.seen == seen:
                await asyncio.sleep(0.005)
                at.take()


async def test_a_frozen_jail_can_be_ended(seat: Opener) -> None:
    async with seat("sh", "-c", "echo go; sleep 30") as at:
        await at.until("go")
        async with at.jail.frozen():
            at.jail.end(Ending.CANCELLED)
            started = time.monotonic()
            assert (await asyncio.wait_for(at.run, 5)).proven_empty
            assert time.monotonic() - started < 2


async def test_the_watchdog_thaws_what_was_forgotten(
    seat: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jail.freeze.FREEZE_LIMIT_S", 0.05)
    async with seat("sh", "-c", "echo go; sleep 0.02; echo gone") as at, at.jail.frozen():
        await at.until("gone")
