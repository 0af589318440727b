"""One terminal: the shell's jail, its output, and the one client that may be attached.

Output is read only as far as the client has said it got, so a slow client slows the shell down, and
what a client has not read is still there when it comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from jail.facts import Ending, Facts
from jail.host import JailHost
from jail.process import Jail
from jail.profile import Profile, WindowSize
from runner.errors import BadRequest, JailFailed, RunnerError, SessionBusy
from runner.execution import result as results
from runner.execution.evidence import StageFacts
from runner.execution.outcomes import classify
from runner.terminal.attachment import Attachment
from runner.terminal.frames import CloseCode, Closing, Exit, encode, encode_error
from runner.terminal.pty import Pty
from runner.terminal.replay import Replay

log = logging.getLogger(__name__)

#: A screen of 200x60 is 12 KiB, a long log is more.
REPLAY_BYTES = 256 << 10
#: How much of that a client may be behind. The rest is for what the kernel's terminal still holds
#: when the shell is dead (64 KiB, tty_buffer.c): that is read whether the client is behind or not.
WINDOW_BYTES = REPLAY_BYTES - (64 << 10)
#: Typed or pasted, and not yet taken by the terminal.
INPUT_BYTES = 1 << 20
#: For a client to take the last of the output when the shell has ended.
DRAIN_TIMEOUT_S = 5.0
#: Between two looks at what ends a terminal from outside.
WATCH_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How long a terminal may stand idle, and without a client. In seconds."""

    idle: float
    grace: float


#: What has come to make the terminal untrue, or None.
Untruth = Callable[[], Awaitable[RunnerError | None]]


class Terminal:
    """A guest of the session (`session.guests.Guest`)."""

    def __init__(
        self, host: JailHost, profile: Profile, policy: Policy, *, incarnation: str, untrue: Untruth
    ) -> None:
        self.id = secrets.token_hex(8)
        self.incarnation = incarnation
        self.replay = Replay(REPLAY_BYTES)
        self._policy = policy
        self.untrue = untrue
        self._limits = profile.limits
        self._jail = Jail(host, profile, on_started=self._on_started)
        self._pty: Pty | None = None
        self._client: Attachment | None = None
        self._was_attached = False
        self._acknowledged = 0
        self._has_room = asyncio.Event()
        self._input = bytearray()
        self._typed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._started = asyncio.Event()
        self._leaving: asyncio.TimerHandle | None = None
        self._active_at = time.monotonic()
        #: Once it is to end or has ended: nobody gets in any more, and why.
        self.closing: Closing | None = None

    # Its life

    async def live(self) -> Facts:
        """From start to proven end; cancelling it ends the shell."""
        try:
            facts = await self._jail.run()
            self._close(self._exited(facts))
            if self._tasks and self.closing and not self.closing.at_once:
                # The terminal is closed: what it still holds is all there will be.
                await asyncio.wait(self._tasks[:1], timeout=DRAIN_TIMEOUT_S)
            return facts
        finally:
            self._close(Closing(CloseCode.INTERNAL))
            await self._let_go()

    async def started(self, life: asyncio.Task[Facts]) -> None:
        """Waits until the shell runs. Raises `JailFailed`."""
        starting = asyncio.create_task(self._started.wait())
        try:
            await asyncio.wait({starting, life}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            starting.cancel()
        if not self._started.is_set():
            raise JailFailed("the shell could not be started")

    def _on_started(self) -> None:
        pty = self._pty = Pty(self._jail.take_terminal())
        for work in (self._read(pty), self._write(pty), self._watch()):
            self._tasks.append(asyncio.create_task(work))
        # Whoever asked for it may be gone by now.
        self._wait_for_client()
        self._started.set()

    async def _read(self, pty: Pty) -> None:
        while True:
            while (room := self._room()) <= 0:
                self._has_room.clear()
                await self._has_room.wait()
            data = await pty.read(room)
            if not data:
                return
            self.replay.append(data)
            self._active_at = time.monotonic()
            if self._client is not None:
                self._client.notify()
            # A shell that floods must leave the loop its turns.
            await asyncio.sleep(0)

    def _room(self) -> int:
        window = WINDOW_BYTES if self.closing is None else REPLAY_BYTES
        return window - (self.replay.end - self._acknowledged)

    async def _write(self, pty: Pty) -> None:
        while True:
            while not self._input:
                self._typed.clear()
                await self._typed.wait()
            # A whole paste is taken away at once; what comes meanwhile is counted anew.
            data, self._input = bytes(self._input), bytearray()
            await pty.write(data)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(WATCH_INTERVAL_S, self._policy.idle))
            if time.monotonic() - self._active_at >= self._policy.idle:
                self._jail.end(Ending.DEADLINE)
            elif (error := await self.untrue()) is not None:
                self.dismiss(error)

    async def _let_go(self) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.error("a terminal failed", exc_info=outcome)
        if self._leaving is not None:
            self._leaving.cancel()
        if self._pty is not None:
            self._pty.close()

    def _exited(self, facts: Facts) -> Closing:
        stage = StageFacts(workspace_present=True, jail=facts, limits=self._limits)
        verdict = classify(stage)
        log.info("terminal ended", extra={"terminal": self.id, "outcome": verdict.kind.value})
        frame = Exit(
            code=verdict.code, signal=verdict.signal_name, outcome=results.outcome(verdict)
        )
        return Closing(CloseCode.DONE, encode(frame), at_once=False)

    # Its end

    def dismiss(self, why: RunnerError) -> None:
        """The workspace it stands on is no more: its client is told so, and the shell is ended."""
        self._end(Closing(CloseCode.INCARNATION_ENDED, encode_error(why)))

    def stop(self) -> None:
        """The daemon is stopping."""
        self._end(Closing(CloseCode.GOING_AWAY))

    def hang_up(self) -> None:
        """Nobody needs the shell any more."""
        self._jail.end(Ending.CANCELLED)

    def _end(self, closing: Closing) -> None:
        self._close(closing)
        self._jail.end(Ending.CANCELLED)

    def _close(self, closing: Closing) -> None:
        if self.closing is None:
            self.closing = closing
            self._has_room.set()
            if self._client is not None:
                self._client.dismiss(closing)

    async def gone(self) -> bool:
        """Whether nothing is left of its jail, looked at now."""
        return await self._jail.gone()

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Its processes stand still meanwhile."""
        async with self._jail.frozen() as frozen:
            if not frozen:
                log.warning("a terminal could not be frozen", extra={"terminal": self.id})
            yield

    # Its client

    def attach(self, *, offset: int | None, takeover: bool) -> Attachment:
        """A client comes in at `offset`, or at the oldest byte there is.

        Raises `SessionBusy` while another is attached, unless it is to be sent away.
        """
        if offset is not None and offset > self.replay.end:
            raise BadRequest("there are not so many bytes yet", field="offset")
        before = self._client
        if before is not None:
            if not takeover:
                raise SessionBusy("a client is attached to the terminal", reason="terminal_held")
            taken = SessionBusy("another client has taken the terminal", reason="taken_over")
            before.dismiss(Closing(CloseCode.TAKEN_OVER, encode_error(taken)))
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        at = max(self.replay.start, offset or 0)
        self._client = Attachment(self, offset=at, resumed=self._was_attached)
        self._was_attached = True
        self._acknowledged = at
        if self.closing is not None:
            self._client.dismiss(self.closing)
        return self._client

    @property
    def is_attached(self) -> bool:
        """Whether a client is here."""
        return self._client is not None

    def left(self, client: Attachment) -> None:
        """That client is gone."""
        if self._client is client:
            self._client = None
            self._wait_for_client()

    def _wait_for_client(self) -> None:
        if self.closing is None:
            loop = asyncio.get_running_loop()
            self._leaving = loop.call_later(self._policy.grace, self.hang_up)

    def acknowledge(self, offset: int) -> None:
        """The client has read so far."""
        self._acknowledged = max(self._acknowledged, offset)
        self._has_room.set()

    def type(self, data: bytes) -> bool:
        """Input; False when more is waiting than is kept."""
        if len(self._input) + len(data) > INPUT_BYTES:
            return False
        self._input += data
        self._active_at = time.monotonic()
        self._typed.set()
        return True

    def resize(self, size: WindowSize) -> None:
        """The client's window has this size now."""
        if self._pty is not None and self.closing is None:
            self._pty.resize(size)
