"""The record as the daemon has it, kept equal to the one on its disk."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from runner.session.record import Record, Store

log = logging.getLogger(__name__)


class Ledger:
    """Writes first, then believes. One per daemon."""

    def __init__(self, store: Store, record: Record | None) -> None:
        self._store = store
        self.record = record
        #: Goes up whenever the workspace becomes another tree.
        self.epoch = 0

    @property
    def bound(self) -> Record:
        """The record of a session that is bound."""
        assert self.record is not None
        return self.record

    @property
    def disk_key(self) -> bytes:
        """A random key that lives in this disk's state directory and nowhere else."""
        return self._store.key

    def write(self, record: Record, *, durable: bool = False) -> None:
        """Puts `record` on disk, then takes it as the truth."""
        self._store.save(record, durable=durable)
        self.record = record

    def note_surfaced(self, delivered: Mapping[str, str], *, epoch: int) -> None:
        """These outputs (path → hash) have reached the client, if they are still of this tree.

        Nothing fails when this cannot be written: the client is then given them once more.
        """
        if not delivered or epoch != self.epoch or self.record is None:
            return
        surfaced = self.record.surfaced | dict(delivered)
        try:
            self.write(replace(self.record, surfaced=surfaced))
        except OSError:
            log.exception("what was delivered could not be noted")
