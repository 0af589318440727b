"""The one terminal of the session: who may open it, who may come back to it, and when it ends.

The guard is `session.hold`: an attach provisions a fresh session first and holds it until the shell
runs. From then on the terminal is a guest: executions go on beside it, a checkpoint freezes it, and
what replaces the workspace ends it first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from jail.facts import Facts
from jail.host import JailHost
from jail.profile import WindowSize
from runner.errors import IncarnationMismatch, NotFound, RunnerError, WorkspaceDirty
from runner.execution.profile import Identity
from runner.finish import finish
from runner.session.hold import Hold
from runner.session.lifecycle import Operation, State
from runner.session.record import Dirty
from runner.session.session import Provision, Session
from runner.settings import Settings
from runner.terminal import shell
from runner.terminal.attachment import Attachment
from runner.terminal.terminal import Policy, Terminal
from runner.terminal.tickets import Tickets
from runner.workspace.dataroot import DataRoot
from runner.workspace.fingerprint import HashCache

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks for. `terminal` and `offset`: it has been here before."""

    session: str
    expected_incarnation: str | None
    terminal: str | None
    offset: int | None
    takeover: bool
    size: WindowSize | None


class Terminals:
    """At most one lives."""

    def __init__(
        self,
        *,
        host: JailHost,
        data: DataRoot,
        session: Session,
        identity: Identity,
        settings: Settings,
        provision: Provision,
        cache: HashCache,
    ) -> None:
        """`cache`: what is known of the workspace's files, which is not true of a shared one."""
        self._host = host
        self._data = data
        self._session = session
        self._identity = identity
        self._settings = settings
        self._provision = provision
        self._cache = cache
        self._policy = Policy(idle=settings.terminal_idle_timeout, grace=settings.terminal_grace)
        self._terminal: Terminal | None = None
        self._ended_at = 0.0
        self._life: asyncio.Task[Facts] | None = None
        self.tickets = Tickets()

    @property
    def live(self) -> Terminal | None:
        """The terminal, while it is not to end."""
        terminal = self._terminal
        return terminal if terminal is not None and terminal.closing is None else None

    async def attach(self, asked: Asked) -> Attachment:
        """The guard, and behind it a shell on a provisioned incarnation.

        Raises what kept it from that, and then nothing was started. What is attached to is left by
        its `leave`; one that nobody leaves ends with its shell.
        """
        session = self._session
        session.admit(asked.session, expected_incarnation=asked.expected_incarnation)
        session.refuse_dirty()
        terminal = await self._standing(asked)
        if terminal is not None:
            return self._seat(terminal, asked)
        async with session.hold(
            Operation.ATTACH,
            expected_incarnation=asked.expected_incarnation,
            provision=self._provision,
        ) as hold:
            # Somebody else may have opened it while we waited.
            terminal = await self._standing(asked) or await self._open(hold, asked)
            attachment = self._seat(terminal, asked)
            hold.done()
        return attachment

    async def aclose(self) -> None:
        """Ends the terminal and waits for its end."""
        if self._life is not None and self._terminal is not None:
            self._terminal.stop()
            await asyncio.wait({self._life})

    @staticmethod
    def _seat(terminal: Terminal, asked: Asked) -> Attachment:
        attachment = terminal.attach(offset=asked.offset, takeover=asked.takeover)
        if asked.size is not None:
            attachment.resize(asked.size)
        return attachment

    async def _standing(self, asked: Asked) -> Terminal | None:
        """The terminal that is there. Raises `NotFound` if the client means another."""
        terminal = self.live
        if terminal is not None and (error := await terminal.untrue()) is not None:
            terminal.dismiss(error)
            terminal = None
        if asked.terminal is None:
            return terminal
        if terminal is None:
            # The shell ended while its client was away: the rest, and how, is still to be had.
            terminal = self._ended_lately()
        if terminal is None or terminal.id != asked.terminal:
            raise NotFound("that terminal has ended", reason="terminal_gone")
        return terminal

    def _ended_lately(self) -> Terminal | None:
        terminal = self._terminal
        if terminal is None or terminal.closing is None or terminal.closing.at_once:
            return None
        is_late = self._ended_at and time.monotonic() - self._ended_at > self._policy.grace
        return None if is_late else terminal

    async def _open(self, hold: Hold, asked: Asked) -> Terminal:
        if self._life is not None:
            # One that is ending; its end is bounded.
            await asyncio.wait({self._life})
        workspace = await asyncio.to_thread(self._data.workspace_inode)
        if workspace is None:
            hold.tearing(Dirty.MISSING)
            raise WorkspaceDirty("it is gone", reason=Dirty.MISSING)
        # Whoever holds a mapping of a file changes it unseen: what is known of the files is void.
        self._cache.clear()
        await asyncio.to_thread(self._data.mark_workspace)
        incarnation, epoch = hold.record.incarnation, self._session.ledger.epoch

        async def untrue() -> RunnerError | None:
            if (self._session.incarnation, self._session.ledger.epoch) != (incarnation, epoch):
                return IncarnationMismatch("the workspace is another one now")
            if self._session.state is State.DIRTY:
                return WorkspaceDirty("restore into it or recycle", reason="dirty")
            if await asyncio.to_thread(self._data.workspace_inode) != workspace:
                return WorkspaceDirty("it is gone", reason=Dirty.MISSING)
            return None

        terminal = Terminal(
            self._host,
            shell.profile(
                self._settings,
                self._identity,
                workspace=self._data.workspace_source(),
                size=asked.size or shell.DEFAULT_SIZE,
            ),
            self._policy,
            incarnation=incarnation,
            untrue=untrue,
        )
        self._terminal, self._ended_at = terminal, 0.0
        self._life = asyncio.create_task(self._host_guest(terminal), name="terminal")
        await terminal.started(self._life)
        return terminal

    async def _host_guest(self, terminal: Terminal) -> Facts:
        """The terminal's life as a guest of the session."""
        guests = self._session.guests
        guests.add(terminal)
        try:
            facts = await terminal.live()
        except Exception:
            # It stays a guest: that nothing is left of it was not proven.
            log.exception("a terminal failed", extra={"terminal": terminal.id})
            guests.unproven(terminal)
            raise
        await finish(asyncio.to_thread(self._mark))
        if facts.proven_empty:
            guests.remove(terminal)
        else:
            log.error("a terminal could not be proven empty", extra={"terminal": terminal.id})
            guests.unproven(terminal)
        self._ended_at = time.monotonic()
        return facts

    def _mark(self) -> None:
        try:
            self._data.mark_workspace()
        except OSError:
            # Gone, or the disk is: there is nothing left that could be taken for unchanged.
            log.warning("the workspace could not be marked as changed")
