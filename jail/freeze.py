"""Freezing a jail: its processes stop where they are, unnoticed by themselves, and go on later.

On cgroup v2 by cgroup.freeze, with or without controllers; on v1 by the freezer hierarchy. A frozen
jail can be ended: v2 lets SIGKILL through, and on v1 it is thawed for that.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from jail.cgroup import Cgroup

log = logging.getLogger(__name__)

#: For the kernel to stop all processes; one in an uninterruptible sleep is waited for this long.
FREEZE_TIMEOUT_S = 2.0
FREEZE_POLL_S = 0.001
#: The watchdog: whoever froze a jail and forgot it does not keep it from running.
FREEZE_LIMIT_S = 60.0


class Freeze:
    """One freeze of one cgroup, used once."""

    def __init__(self, cgroup: Cgroup, *, limit_s: float | None = None) -> None:
        self._cgroup = cgroup
        # A thread of its own: it must fire when the event loop is what hangs.
        self._watchdog = threading.Timer(limit_s or FREEZE_LIMIT_S, self._give_up)
        self._watchdog.daemon = True
        self._lock = threading.Lock()
        self._ended = False

    def begin(self) -> bool:
        """Blocks until all processes have stopped, or FREEZE_TIMEOUT_S; whether they have."""
        with self._lock:
            # Whoever waited for this thread may have given up before it came to run.
            if self._ended or not self._cgroup.set_frozen(True):
                return False
            self._watchdog.start()
        deadline = time.monotonic() + FREEZE_TIMEOUT_S
        while not (frozen := self._cgroup.is_frozen()) and time.monotonic() < deadline:
            time.sleep(FREEZE_POLL_S)
        return frozen

    def end(self) -> None:
        """Lets them go on; a second call does nothing."""
        with self._lock:
            self._ended = True
            self._watchdog.cancel()
            self._cgroup.set_frozen(False)

    def _give_up(self) -> None:
        log.warning("a jail was thawed by the watchdog", extra={"pid": os.getpid()})
        self._cgroup.set_frozen(False)
