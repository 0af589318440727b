"""The end of a session: wiped, and noted so that no later daemon can take half of it for whole."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from runner.errors import Internal
from runner.session import lifecycle
from runner.session.ledger import Ledger
from runner.session.lifecycle import End, Operation, State
from runner.session.record import Dirty, Record

log = logging.getLogger(__name__)


def end(ledger: Ledger, state: State, wipe: Callable[[], None]) -> tuple[State, Internal | None]:
    """Wipes; the state that this leads to, and what is told where it was not done. Blocks.

    Nothing holds the session. One that is terminated already stays so, but what was brought here
    since is wiped as well.
    """
    row = lifecycle.find(state, Operation.TERMINATE)
    failure: Internal | None = None
    try:
        if row is None:
            wipe()
        else:
            _wipe(ledger, wipe)
    except Exception as error:
        log.exception("the session could not be ended")
        unknown = Internal("not everything could be wiped")
        failure = error if isinstance(error, Internal) else unknown
    if row is None:
        return state, failure
    ended = End.DONE
    if failure is not None:
        ended = End.TORN if End.TORN in row.ends else End.UNDONE
    after = lifecycle.after(row, state, ended)
    if failure is not None:
        failure.recycle = after is State.DIRTY
    log.info("session ended", extra={"state": after.value, "end": ended.value})
    return after, failure


def _wipe(ledger: Ledger, wipe: Callable[[], None]) -> None:
    if ledger.record is not None:
        ledger.condemn(Dirty.ENDED)
    wipe()
    ledger.forget_boot()
    ended = ledger.record or Record(session="", incarnation="")
    ledger.write(replace(ended.emptied(), terminated=True), durable=True)
