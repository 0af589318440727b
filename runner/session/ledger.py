"""The record as the daemon has it, kept equal to the one on its disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from runner.session.record import Dirty, Record, Store

log = logging.getLogger(__name__)


class Ledger:
    """Writes first, then believes. One per daemon; any thread may use it.

    An operation's thread and the loop, which hears late of what reached a client, may both have
    something to say: each change is made to the record as it is then.
    """

    def __init__(self, store: Store, record: Record | None) -> None:
        self._store = store
        self._lock = threading.Lock()
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
        """A random key that lives in this disk's state directory and nowhere else, once a session
        is bound."""
        return self._store.key

    def write(self, record: Record, *, durable: bool = False) -> None:
        """Puts `record` on disk, then takes it as the truth: another life of the workspace."""
        with self._lock:
            self._write(record, durable=durable)
            self.epoch += 1

    def begin(self, record: Record, *, key: bytes) -> None:
        """The record of a session that is bound. On a disk that had none it is under a new `key`:
        what a snapshot had on its disk before is in all its clones."""
        with self._lock:
            if self.record is None:
                self._store.rekey(key)
            self._write(record, durable=False)
            self.epoch += 1

    def amend(
        self, change: Callable[[Record], Record], *, durable: bool = False, new_tree: bool = False
    ) -> None:
        """Changes the record. `new_tree`: the workspace has become another one."""
        with self._lock:
            self._write(change(self.bound), durable=durable)
            if new_tree:
                self.epoch += 1

    def note_surfaced(self, delivered: Mapping[str, str], *, epoch: int) -> None:
        """These outputs (path → hash) have reached the client, if they are still of this tree.

        Nothing fails when this cannot be written: the client is then given them once more.
        """
        with self._lock:
            if not delivered or epoch != self.epoch or self.record is None:
                return
            surfaced = self.record.surfaced | dict(delivered)
            try:
                self._write(replace(self.record, surfaced=surfaced), durable=False)
            except OSError:
                log.exception("what was delivered could not be noted")

    def condemn(self, reason: Dirty) -> None:
        """Notes that everything is about to be wiped, on a full disk too: by leaving no record.

        The next daemon takes a workspace without a record for nobody's, and wipes it.
        """
        with self._lock:
            condemned = replace(self.bound, dirty=reason)
            try:
                self._write(condemned, durable=False)
            except OSError:
                log.exception("no room to note the end of the session: its record is removed")
                self._store.forget()
                self.record = condemned

    def _write(self, record: Record, *, durable: bool) -> None:
        self._store.save(record, durable=durable)
        self.record = record

    # What the last boot printed: for people, and not part of the record

    def keep_boot(self, report: bytes) -> None:
        """Keeps it for the next daemon; that it could not be kept fails nothing."""
        try:
            self._store.save_boot(report)
        except OSError:
            log.exception("the boot's report could not be kept")

    def kept_boot(self) -> bytes | None:
        """What was kept last."""
        return self._store.load_boot()

    def forget_boot(self) -> None:
        """It holds a session's output."""
        self._store.forget_boot()
