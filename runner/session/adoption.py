"""What a daemon finds on its disk when it starts, and makes of it. Blocks.

Whatever the last daemon was doing, the workspace is afterwards the old one, the new one, or empty,
and the record says which; nothing half-made is left.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from runner.session.lifecycle import State
from runner.session.record import Dirty, Record, RecordUnreadable, Store
from runner.session.session import Session
from runner.workspace.dataroot import DataRoot

log = logging.getLogger(__name__)


def adopt(data: DataRoot, *, lock_wait: float) -> Session:
    """The session as this disk has it. The jails of an earlier daemon must have ended before."""
    data.sweep()
    data.reserve.fill()
    store = Store(data.open_state(), reserve=data.reserve)
    record = _read(store)
    if record is not None and record.dirty is Dirty.RESTORING:
        record = _wipe(data, store, record)
    state = adopted_state(record, workspace_present=data.workspace_present())
    if record is not None and state is State.DIRTY and record.dirty is None:
        # Not written down: what is on the disk is looked at again at the next start.
        record = replace(record, dirty=Dirty.MISSING)
    if state is State.UNBOUND and data.workspace_present():
        # Nobody's files: a session bound here must not find them.
        data.wipe_workspace()
    log.info(
        "session adopted",
        extra={
            "state": state.value,
            "incarnation": record.incarnation if record else None,
            "dirty": record.dirty if record else None,
        },
    )
    return Session(store, record, state=state, lock_wait=lock_wait)


def _read(store: Store) -> Record | None:
    try:
        return store.load()
    except RecordUnreadable as error:
        # Whose files these are is not known, so nobody gets them: dirty until a recycle.
        log.error("the session record is not to be trusted", extra={"why": str(error)})
        return Record(session="", incarnation="", dirty=Dirty.UNREADABLE)


def _wipe(data: DataRoot, store: Store, record: Record) -> Record:
    """A restore that the last daemon did not finish has failed like any other: empty, or dirty."""
    try:
        data.wipe_workspace()
        emptied = record.emptied()
        store.save(emptied, durable=True)
    except OSError:
        log.exception("cannot wipe after an unfinished restore")
        return replace(record, dirty=Dirty.RESTORING)
    log.warning("an unfinished restore was wiped")
    return emptied


def adopted_state(record: Record | None, *, workspace_present: bool) -> State:
    """The state in which a daemon that starts on this disk finds the session. Pure."""
    if record is None:
        return State.UNBOUND
    if record.terminated:
        return State.TERMINATED
    if record.dirty is not None or (record.provisioned and not workspace_present):
        return State.DIRTY
    return State.READY if record.provisioned == record.incarnation else State.FRESH
