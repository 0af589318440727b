"""One operation's hold of the session: what it says of the workspace while it has it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from runner.errors import Internal, RunnerError, WorkspaceDirty
from runner.session import lifecycle
from runner.session.ledger import Ledger
from runner.session.lifecycle import End, Operation, Row, State
from runner.session.record import Dirty, Record
from runner.workspace.dataroot import DataRoot
from runner.workspace.full import full_disk_is_told
from runner.workspace.priming import Primed
from runner.workspace.tree import Tree

log = logging.getLogger(__name__)

NOTHING: Mapping[str, str | None] = MappingProxyType({})
_NO_NOTE = "there is no room to note what is done to the workspace"


class Hold:
    """One operation's hold of the session. Says how it ended by what was called last."""

    def __init__(self, ledger: Ledger, row: Row, origin: State, *, is_shared: bool = False) -> None:
        self._ledger = ledger
        self.row = row
        self.origin = origin
        self.end = End.UNDONE
        #: A guest, such as a terminal, is in the workspace too: files change under the operation.
        self.is_shared = is_shared
        #: The workspace is another tree, whole, and the record says so.
        self.is_replaced = False
        self._is_over = False

    @property
    def record(self) -> Record:
        """The record as it is now."""
        return self._ledger.bound

    def tearing(self, reason: Dirty) -> None:
        """From here to `whole` or `wiped` the workspace may be half-changed: noted before it is."""
        with full_disk_is_told(_NO_NOTE):
            self._amend(lambda record: replace(record, dirty=reason))
        self.end = End.TORN

    def whole(
        self,
        *,
        primed: Mapping[str, Primed] | None = None,
        written: Mapping[str, str | None] = NOTHING,
        durable: bool = False,
    ) -> None:
        """The half-change is over, with this metadata. The operation itself may yet fail.

        `written`: path → the hash of what the client has there now, or None if it has nothing that
        was an output. What reached it meanwhile of an earlier operation stays noted.
        """

        def mended(record: Record) -> Record:
            kept = {path: sha for path, sha in record.surfaced.items() if path not in written}
            return replace(
                record,
                dirty=None,
                primed=record.primed if primed is None else dict(primed),
                surfaced=kept | {path: sha for path, sha in written.items() if sha is not None},
            )

        with full_disk_is_told(_NO_NOTE):
            self._amend(mended, durable=durable)
        self.end = End.UNDONE

    def replaced(self, *, primed: Mapping[str, Primed], surfaced: Mapping[str, str]) -> None:
        """The workspace is another tree now, whole; nothing vouches for its provisioning yet."""
        self._amend(
            lambda record: replace(
                record.emptied(), restored=True, primed=dict(primed), surfaced=dict(surfaced)
            ),
            durable=True,
            new_tree=True,
        )
        self.is_replaced = True
        self.end = End.DONE

    def wiped(self) -> None:
        """The workspace and its metadata are empty."""
        self._amend(Record.emptied, durable=True, new_tree=True)
        self.end = End.WIPED

    def done(self) -> None:
        """The operation did what was asked. What was torn meanwhile stays so."""
        if self.end is not End.TORN:
            self.end = End.DONE

    def close(self) -> None:
        """The session is held no more: the record is whoever's holds it next."""
        self._is_over = True

    def _amend(
        self, change: Callable[[Record], Record], *, durable: bool = False, new_tree: bool = False
    ) -> None:
        def held(record: Record) -> Record:
            # Asked under the ledger's lock: whoever is next has written nothing yet if it passes.
            if self._is_over:
                raise Internal("the session is not held any more")
            return change(record)

        self._ledger.amend(held, durable=durable, new_tree=new_tree)

    @contextlib.contextmanager
    def telling(self, operation: Operation) -> Iterator[None]:
        """What fails here and leaves the session dirty says so, whatever else it says."""
        try:
            yield
        except Exception as error:
            if lifecycle.after(self.row, self.origin, self.end) is not State.DIRTY:
                raise
            if isinstance(error, RunnerError):
                told = error
            else:
                log.exception("unforeseen failure")
                told = Internal()
            told.recycle = True
            told.retryable &= lifecycle.find(State.DIRTY, operation) is not None
            if told is error:
                raise
            raise told from error


@contextlib.contextmanager
def workspace_of(data: DataRoot, hold: Hold) -> Iterator[Tree]:
    """The workspace that is held. Raises `WorkspaceDirty`, and the session is, if it is gone."""
    try:
        tree = data.workspace()
    except (FileNotFoundError, NotADirectoryError):
        hold.tearing(Dirty.MISSING)
        raise WorkspaceDirty("it is gone", reason=Dirty.MISSING) from None
    with tree:
        yield tree
