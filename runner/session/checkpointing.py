"""Checkpoint and restore as operations of the session: which key, and what a failure means.

The bytes are `runner.checkpoint`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime

from runner.checkpoint.bases import Bases
from runner.checkpoint.chain import Expected
from runner.checkpoint.limits import Limits
from runner.checkpoint.restore import Restore
from runner.checkpoint.sidecar import WRONG_KEY, SidecarFacts, derive_key
from runner.errors import (
    CheckpointUnauthentic,
    IncarnationMismatch,
    InsufficientStorage,
    Internal,
)
from runner.finish import finish
from runner.session.hold import Hold, workspace_of
from runner.session.lifecycle import Operation
from runner.session.record import Dirty
from runner.session.restoring import Restoring
from runner.session.saving import Checkpoint, Saved
from runner.session.sequence import Sequence
from runner.session.session import Provision, Session
from runner.settings import Settings
from runner.workspace.dataroot import DataRoot
from runner.workspace.fingerprint import HashCache

log = logging.getLogger(__name__)


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
        self._sequence: Sequence | None = None
        self.limits = Limits.of(settings.checkpoint_max_bytes)

    def _key(self, session_id: str, given: bytes | None) -> bytes:
        """The caller's key, else one derived from the deployment's, else from this disk's own."""
        return given or derive_key(self._master_key or self._session.ledger.disk_key, session_id)

    @contextlib.asynccontextmanager
    async def save(
        self,
        session_id: str,
        *,
        expected_incarnation: str | None,
        given_key: bytes | None,
        base_tags: Collection[str] = (),
    ) -> AsyncIterator[Checkpoint]:
        """Holds the session while its checkpoint is taken: a delta to the first of `base_tags` that
        is known, else a full one.

        Never binds: a VM that knows nothing of the session must not hand out an empty archive in
        its name.
        """
        session = self._session
        session.require_bound(session_id)
        await session.guests.look_again()
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
                    yield await Checkpoint.planned(
                        Saved(
                            tree=tree,
                            facts=facts,
                            key=self._key(session_id, given_key),
                            limits=self.limits,
                            # Nor is one a base for another.
                            bases=None if hold.is_shared else self._bases(hold),
                            base_tags=base_tags,
                        )
                    )
            hold.done()

    def _bases(self, hold: Hold) -> Bases:
        return Bases(
            self._data.bases,
            self._data.staging,
            key=self._session.ledger.disk_key,
            incarnation=hold.record.incarnation,
        )

    @contextlib.asynccontextmanager
    async def restore(
        self,
        session_id: str,
        *,
        expected_incarnation: str | None,
        given_key: bytes | None,
        more: bool = False,
        declared: int | None = None,
    ) -> AsyncIterator[Restoring]:
        """Holds the session while archives are fed to what is yielded.

        Whatever ends it before `Restoring.commit` has, the workspace and its metadata are wiped; if
        even that fails the session is dirty. With `more` it may end without: the restore then waits
        for the next request's archives. `declared`: the bytes that will lie beside the workspace,
        where the client says so; without room for them it does not begin.
        """
        self._session.admit(session_id, expected_incarnation=expected_incarnation)
        sequence = self._sequence
        if sequence is None or sequence.is_over:
            begun = self._begun(
                session_id,
                expected_incarnation=expected_incarnation,
                given_key=given_key,
                may_start_over=more,
                declared=declared,
            )
            if not more:
                async with begun as restoring:
                    yield restoring
                return
            sequence = self._sequence = Sequence(begun, key=given_key)
        async with sequence.turn(key=given_key) as restoring:
            yield restoring

    async def aclose(self) -> None:
        """Ends a restore that waits for its next archive."""
        if self._sequence is not None:
            await self._sequence.aclose()

    @contextlib.asynccontextmanager
    async def _begun(
        self,
        session_id: str,
        *,
        expected_incarnation: str | None,
        given_key: bytes | None,
        may_start_over: bool,
        declared: int | None,
    ) -> AsyncIterator[Restoring]:
        session = self._session
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
                may_start_over=may_start_over,
            )
            if declared is not None:
                await asyncio.to_thread(self._require_room, declared)
            try:
                await session.guests.turn_out(IncarnationMismatch("a checkpoint is being restored"))
            except Internal:
                # What is left of it may change the files at any time.
                hold.tearing(Dirty.NOT_EMPTY)
                raise
            # From here on it has begun: the next byte read may be the archive's first.
            hold.tearing(Dirty.RESTORING)
            try:
                if self._data.free_bytes() < self.limits.expanded_bytes:
                    # A workspace may have been as large as the disk without what is kept aside.
                    await finish(asyncio.to_thread(self._data.reserve.give_up))
                async with (
                    Restore(self._data.staging, staged, expected) as feeding,
                    Restoring(feeding, self._data, hold, staged) as restoring,
                ):
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
                if not self._data.reserve.is_whole:
                    await finish(asyncio.to_thread(self._data.reserve.fill))

    def _require_room(self, declared: int) -> None:
        if declared > self._data.free_bytes() + self._data.reserve.held_bytes:
            raise InsufficientStorage("the declared size does not fit", reason="declared")

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
