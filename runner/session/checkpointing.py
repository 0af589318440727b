"""Checkpoint and restore as operations of the session: which key, and what a failure means.

The bytes are `runner.checkpoint`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

from runner.checkpoint import inventory
from runner.checkpoint.chain import Expected, Restored
from runner.checkpoint.handover import Block
from runner.checkpoint.limits import Limits
from runner.checkpoint.restore import Restore
from runner.checkpoint.save import stream_save
from runner.checkpoint.sidecar import WRONG_KEY, Sidecar, SidecarFacts, derive_key
from runner.errors import CheckpointUnauthentic, IncarnationMismatch, Internal
from runner.finish import finish
from runner.session.hold import Hold, workspace_of
from runner.session.lifecycle import Operation
from runner.session.record import Dirty
from runner.session.session import Provision, Session
from runner.settings import Settings
from runner.workspace.dataroot import DataRoot
from runner.workspace.fingerprint import HashCache

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A save that may start: its state's name, what it leaves out, and its bytes.

    `omitted` counts sockets, fifos and devices. `chunks` is to be closed by whoever takes it.
    """

    etag: str
    entries: int
    omitted: int
    chunks: AsyncGenerator[Block, None]


class Checkpointing:
    """Saves and restores the session of this VM."""

    def __init__(
        self,
        *,
        data: DataRoot,
        session: Session,
        settings: Settings,
        cache: HashCache,
        provision: Provision,
    ) -> None:
        self._data = data
        self._session = session
        self._master_key = settings.sidecar_key
        self._cache = cache
        self._provision = provision
        self.limits = Limits.of(settings.checkpoint_max_bytes)

    def _key(self, session_id: str, given: bytes | None) -> bytes:
        """The caller's key, else one derived from the deployment's, else from this disk's own."""
        return given or derive_key(self._master_key or self._session.ledger.disk_key, session_id)

    @contextlib.asynccontextmanager
    async def save(
        self, session_id: str, *, expected_incarnation: str | None, given_key: bytes | None
    ) -> AsyncIterator[Checkpoint]:
        """Holds the session while its checkpoint is taken. Never binds: a VM that knows nothing of
        the session must not hand out an empty archive in its name."""
        session = self._session
        session.require_bound(session_id)
        async with session.hold(
            Operation.CHECKPOINT,
            expected_incarnation=expected_incarnation,
            provision=self._provision,
        ) as hold:
            facts = SidecarFacts(
                session=session_id,
                incarnation=hold.record.incarnation,
                created_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                primed=hold.record.primed,
                surfaced=hold.record.surfaced,
            )
            # Outermost: a guest goes on only when nothing reads the tree any more.
            async with session.guests.frozen():
                with workspace_of(self._data, hold) as tree:
                    if hold.is_shared:
                        # A guest's mappings change files without a trace: no two states are one.
                        await finish(asyncio.to_thread(tree.mark))
                    planned = await finish(asyncio.to_thread(inventory.plan, tree, self.limits))
                    chunks = stream_save(
                        tree,
                        facts,
                        planned,
                        key=self._key(session_id, given_key),
                        limits=self.limits,
                    )
                    etag, entries = planned.etag(facts), planned.entries
                    async with contextlib.aclosing(chunks):
                        yield Checkpoint(etag, entries, planned.omitted, chunks)
            hold.done()

    @contextlib.asynccontextmanager
    async def restore(
        self, session_id: str, *, expected_incarnation: str | None, given_key: bytes | None
    ) -> AsyncIterator[Restoring]:
        """Holds the session while an archive is fed to what is yielded.

        Whatever ends it before `Restoring.commit` has, the workspace and its metadata are wiped; if
        even that fails the session is dirty.
        """
        session = self._session
        session.admit(session_id, expected_incarnation=expected_incarnation)
        async with session.hold(
            Operation.RESTORE,
            expected_incarnation=expected_incarnation,
            provision=self._provision,
        ) as hold:
            staged = f"restore-{secrets.token_hex(8)}".encode()
            expected = Expected(
                session=session_id,
                key=self._key(session_id, given_key),
                owner=self._data.owner,
                limits=self.limits,
            )
            await session.guests.turn_out(IncarnationMismatch("a checkpoint is being restored"))
            # From here on it has begun: the next byte read may be the archive's first.
            hold.tearing(Dirty.RESTORING)
            try:
                async with Restore(self._data.staging, staged, expected) as feeding:
                    restoring = Restoring(feeding, self._data, hold, staged)
                    yield restoring
                    if not restoring.committed:
                        raise Internal("the restore was not committed")
            except BaseException as error:
                if not hold.is_replaced:
                    await finish(self._wipe(hold))
                if given_key is None and self._master_key is None:
                    _say_whose_key(error)
                raise
            finally:
                self._cache.clear()

    async def _wipe(self, hold: Hold) -> None:
        try:
            await asyncio.to_thread(self._empty, hold)
        except OSError:
            # The hold still says torn: the session is dirty, on disk too.
            log.exception("the workspace could not be wiped")
        else:
            log.warning("a restore failed and the workspace was wiped")

    def _empty(self, hold: Hold) -> None:
        self._data.wipe_workspace()
        hold.wiped()


def _say_whose_key(error: BaseException) -> None:
    """Without a key from outside nobody can tell another disk's archive from a forged one."""
    if isinstance(error, CheckpointUnauthentic) and error.reason == WRONG_KEY:
        raise CheckpointUnauthentic(
            "it was not sealed on this disk, whose own key is the only one here: give "
            "X-Sidecar-Key or RUNNER_SIDECAR_KEY where it is saved and where it is restored",
            reason="disk_key",
        ) from None


class Restoring:
    """A restore that has begun."""

    def __init__(self, feeding: Restore, data: DataRoot, hold: Hold, staged: bytes) -> None:
        self._feeding = feeding
        self._data = data
        self._hold = hold
        self._staged = staged
        self.committed = False

    async def feed(self, chunk: bytes) -> None:
        """Takes the archive's next bytes; raises what the archive deserves."""
        await self._feeding.feed(chunk)

    async def next_archive(self) -> None:
        """An archive has ended, and one that builds on it follows."""
        await self._feeding.next_archive()

    async def commit(self) -> Restored:
        """The last archive has ended: verifies all of it and puts it in the workspace's place."""
        restored = await self._feeding.finish()
        await finish(asyncio.to_thread(self._replace, restored.sidecar))
        self.committed = True
        return restored

    def _replace(self, sidecar: Sidecar) -> None:
        try:
            self._data.commit_workspace(self._staged)
            self._hold.replaced(primed=sidecar.primed, surfaced=sidecar.surfaced)
        except OSError as error:
            raise Internal("the restored files could not be put in place") from error
        try:
            # What stood there before.
            self._data.staging.remove((self._staged,))
        except OSError:
            log.exception("the replaced workspace could not be removed")
