"""One operation's hold of the session: what it says of the workspace while it has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from runner.session.ledger import Ledger
from runner.session.lifecycle import End, Row, State
from runner.session.record import Dirty, Record
from runner.workspace.priming import Primed


class Hold:
    """One operation's hold of the session. Says how it ended by what was called last."""

    def __init__(self, ledger: Ledger, row: Row, origin: State) -> None:
        self._ledger = ledger
        self.row = row
        self.origin = origin
        self.end = End.UNDONE
        #: The workspace is another tree, whole, and the record says so.
        self.is_replaced = False

    @property
    def record(self) -> Record:
        """The record as it is now."""
        return self._ledger.bound

    def tearing(self, reason: Dirty) -> None:
        """From here to `whole` or `wiped` the workspace may be half-changed: noted before it is."""
        self._ledger.write(replace(self.record, dirty=reason))
        self.end = End.TORN

    def whole(
        self,
        *,
        primed: Mapping[str, Primed] | None = None,
        surfaced: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        """The half-change is over, with this metadata. The operation itself may yet fail."""
        record = self.record
        self._ledger.write(
            replace(
                record,
                dirty=None,
                primed=record.primed if primed is None else dict(primed),
                surfaced=record.surfaced if surfaced is None else dict(surfaced),
            ),
            durable=durable,
        )
        self.end = End.UNDONE

    def replaced(self, *, primed: Mapping[str, Primed], surfaced: Mapping[str, str]) -> None:
        """The workspace is another tree now, whole; nothing vouches for its provisioning yet."""
        self._ledger.write(
            replace(
                self.record,
                provisioned=None,
                dirty=None,
                primed=dict(primed),
                surfaced=dict(surfaced),
            ),
            durable=True,
        )
        self._ledger.epoch += 1
        self.is_replaced = True
        self.end = End.DONE

    def wiped(self) -> None:
        """The workspace and its metadata are empty."""
        self._ledger.write(self.record.emptied(), durable=True)
        self._ledger.epoch += 1
        self.end = End.WIPED

    def done(self) -> None:
        """The operation did what was asked."""
        self.end = End.DONE
