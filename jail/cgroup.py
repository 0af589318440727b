"""One cgroup per execution, made by us: limits before, counters after death, and a proven end.

`Cgroups` is the owner's parent groups; `Cgroup` is one execution's. All calls are short file
operations of the kernel's (tens of microseconds) unless they say otherwise.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from jail.cgroupfs import (
    POLL_S,
    keyed,
    kill_members,
    members,
    number,
    read,
    remove_group,
    write,
    write_if_there,
)
from jail.facts import Counters, Enforcement
from jail.hierarchy import Parents, make_parents, read_mounted
from jail.profile import Limits

#: nsjail and init stand in the group too, beside the tasks that the profile allows.
OWN_TASKS = 2
REMOVE_TIMEOUT_S = 2.0
#: A dead process is in its group until its namespaces are: the kernel frees all they held first.
EMPTY_TIMEOUT_S = 5.0
SWEEP_TIMEOUT_S = 5.0
_GROUP_PREFIX = "sandbox-runner."


def group_name(owner: str) -> str:
    """The parent group of an owner: the same for the same owner, another for every other."""
    return _GROUP_PREFIX + hashlib.sha256(owner.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Cgroup:
    """The groups of one execution, one directory per hierarchy."""

    name: str
    parents: Parents
    page: int = os.sysconf("SC_PAGE_SIZE")
    #: Where one that could not be removed is kept, to be removed later.
    busy: list[Cgroup] = field(default_factory=list, repr=False, compare=False)

    @property
    def directories(self) -> tuple[str, ...]:
        """Each directory once."""
        return tuple(os.path.join(parent, self.name) for parent in self.parents.directories)

    def _file(self, parent: str | None, name: str) -> str | None:
        return None if parent is None else os.path.join(parent, self.name, name)

    def open_procs(self) -> list[int]:
        """cgroup.procs of each directory, for writing; the caller closes them."""
        opened: list[int] = []
        try:
            for directory in self.directories:
                path = os.path.join(directory, "cgroup.procs")
                opened.append(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        return opened

    def set_limits(self, limits: Limits) -> None:
        """Raises OSError if the kernel does not take one that must hold."""
        memory = str(limits.memory_bytes)
        if self.parents.memory is not None and self.parents.memory_is_v2:
            write(self._file(self.parents.memory, "memory.max"), memory)
            write_if_there(self._file(self.parents.memory, "memory.swap.max"), "0")
        elif self.parents.memory is not None:
            write(self._file(self.parents.memory, "memory.limit_in_bytes"), memory)
            # Memory and swap together: as much as memory alone, so no swap.
            memsw = self._file(self.parents.memory, "memory.memsw.limit_in_bytes")
            write_if_there(memsw, memory)
        if self.parents.pids is not None:
            write(self._file(self.parents.pids, "pids.max"), str(limits.pids + OWN_TASKS))

    def holds(self, limits: Limits) -> bool:
        """Whether the kernel, asked back, has the limits of memory and tasks in force."""
        v2 = self.parents.memory_is_v2
        limit_file = "memory.max" if v2 else "memory.limit_in_bytes"
        memory = number(self._file(self.parents.memory, limit_file))
        pids = number(self._file(self.parents.pids, "pids.max"))
        # The kernel counts memory in whole pages.
        wanted = limits.memory_bytes - limits.memory_bytes % self.page
        return memory == wanted and pids == limits.pids + OWN_TASKS

    def cpu_ns(self) -> int | None:
        """CPU time used by all that ever ran in the group."""
        usage_us = keyed(self._file(self.parents.unified, "cpu.stat"), "usage_usec")
        if usage_us is not None:
            return usage_us * 1000
        return number(self._file(self.parents.cpuacct, "cpuacct.usage"))

    def counters(self) -> Counters:
        """All counters; read after the last process has died."""
        memory = self.parents.memory
        v2 = self.parents.memory_is_v2
        events = "memory.events" if v2 else "memory.oom_control"
        peak = "memory.peak" if v2 else "memory.max_usage_in_bytes"
        return Counters(
            memory_peak_bytes=number(self._file(memory, peak)),
            oom_kills=keyed(self._file(memory, events), "oom_kill"),
            pids_denied=keyed(self._file(self.parents.pids, "pids.events"), "max"),
            cpu_ns=self.cpu_ns(),
        )

    def kill(self) -> None:
        """Kills all processes of the group: at once, or, where the kernel has no cgroup.kill (v1
        alone, as in many containers), one by one, and then `wait_empty` those they made meanwhile.
        """
        if self.parents.freezer is not None:
            # A v1 freezer keeps even SIGKILL waiting.
            self.set_frozen(False)
        with contextlib.suppress(OSError):
            if self.parents.unified is not None:
                write(self._file(self.parents.unified, "cgroup.kill"), "1")
                return
        for directory in self.directories:
            kill_members(directory)

    def set_frozen(self, frozen: bool) -> bool:
        """Asks the kernel to stop or to continue all processes; False where it cannot."""
        unified = self._file(self.parents.unified, "cgroup.freeze")
        try:
            if unified is not None:
                write(unified, "1" if frozen else "0")
                return True
            freezer = self._file(self.parents.freezer, "freezer.state")
            write(freezer, "FROZEN" if frozen else "THAWED")
        except OSError:
            return False
        return freezer is not None

    def is_frozen(self) -> bool:
        """Whether every process has stopped."""
        state = read(self._file(self.parents.freezer, "freezer.state"))
        events = self._file(self.parents.unified, "cgroup.events")
        return keyed(events, "frozen") == 1 or (state or "").strip() == "FROZEN"

    def is_empty(self) -> bool:
        """Whether no process is left in any of the groups."""
        populated = keyed(self._file(self.parents.unified, "cgroup.events"), "populated")
        if populated is not None:
            return populated == 0
        return not any(members(directory) for directory in self.directories)

    def wait_empty(self) -> bool:
        """For a group whose jail is over: kills who is left. Blocks up to EMPTY_TIMEOUT_S."""
        deadline = time.monotonic() + EMPTY_TIMEOUT_S
        while not (empty := self.is_empty()) and time.monotonic() < deadline:
            self.kill()
            time.sleep(POLL_S)
        return empty

    def remove(self) -> bool:
        """Removes the directories; blocks up to REMOVE_TIMEOUT_S. False if one is still there."""
        if self.remove_by(time.monotonic() + REMOVE_TIMEOUT_S):
            return True
        self.busy.append(self)
        return False

    def remove_if_idle(self) -> None:
        """Removes the directories of one that was busy, if it no longer is. Does not block."""
        if not self.remove_by(time.monotonic()):
            self.busy.append(self)

    def remove_by(self, deadline: float) -> bool:
        """Removes the directories; blocks until `deadline`. False if one is still there."""
        removed = [remove_group(directory, deadline) for directory in self.directories]
        return all(removed)


@dataclass(slots=True)
class Cgroups:
    """The owner's parent groups, where there are any."""

    parents: Parents
    enforcement: Enforcement
    #: Of this process: one that was started again in a container may have the same PID.
    _word: str = field(default_factory=lambda: secrets.token_hex(4), compare=False)
    #: Taken by threads, each number once.
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), compare=False)
    busy: list[Cgroup] = field(default_factory=list, repr=False, compare=False)
    #: Held while one of them is out of the list, to be looked at.
    _looking: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @classmethod
    def open(cls, owner: str, *, use: bool = True) -> Cgroups:
        """Ends and removes what a dead daemon of the same owner left, then makes the parents.

        The caller holds whatever makes it the only live daemon of this owner. Blocks up to
        SWEEP_TIMEOUT_S. Without `use` it makes none, and the limits are advisory.
        """
        mounted = read_mounted()
        name = group_name(owner)
        for hierarchy in mounted:
            for left_over in _find_groups(hierarchy.mount_point, name):
                _end_left_over(left_over)
        parents = make_parents(mounted, name) if use else Parents()
        cgroups = cls(parents, Enforcement.ADVISORY)
        if cgroups._limits_hold():
            cgroups.enforcement = Enforcement.ENFORCED
        return cgroups

    def create(self, limits: Limits | None) -> Cgroup:
        """A new group; its limits may also be set later. Raises OSError."""
        self._remove_busy()
        name = f"{self._word}.{next(self._numbers)}"
        group = Cgroup(name, self.parents, busy=self.busy)
        try:
            for directory in group.directories:
                os.mkdir(directory)
            if limits is not None:
                group.set_limits(limits)
        except OSError:
            group.remove()
            raise
        return group

    def is_clear(self) -> bool:
        """Whether nothing is left of any group whose jail is over; kills who is.

        Blocks up to REMOVE_TIMEOUT_S.
        """
        deadline = time.monotonic() + REMOVE_TIMEOUT_S
        while not (clear := self._remove_busy()) and time.monotonic() < deadline:
            for group in list(self.busy):
                group.kill()
            time.sleep(POLL_S)
        return clear

    def _remove_busy(self) -> bool:
        """Whoever could not be removed when it died; whether all are. Threads share the list."""
        with self._looking:
            for _ in range(len(self.busy)):
                with contextlib.suppress(IndexError):
                    self.busy.pop(0).remove_if_idle()
            return not self.busy

    def close(self) -> None:
        """Removes all groups, the parents last; one that is not empty stays for the next sweep.

        Blocks up to REMOVE_TIMEOUT_S: a process is in its group for a while after it was reaped.
        """
        deadline = time.monotonic() + REMOVE_TIMEOUT_S
        while self.busy:
            self.busy.pop().remove_by(deadline)
        for directory in self.parents.directories:
            remove_group(directory, deadline)

    def _limits_hold(self) -> bool:
        limits = Limits(wall_ms=1, cpu_ms=1, memory_bytes=64 << 20, pids=8, output_bytes=1)
        try:
            probe = self.create(limits)
        except OSError:
            return False
        try:
            return probe.holds(limits)
        finally:
            probe.remove()


def _find_groups(mount_point: str, name: str) -> list[str]:
    """Every group of that name: an earlier daemon may have lived elsewhere in the tree."""
    return [os.path.join(path, name) for path, names, _ in os.walk(mount_point) if name in names]


def _end_left_over(parent: str) -> None:
    """Kills what is in the groups below `parent` and removes them, itself included."""
    deadline = time.monotonic() + SWEEP_TIMEOUT_S
    for path, _, _ in os.walk(parent, topdown=False):
        while time.monotonic() < deadline and not kill_members(path):
            time.sleep(POLL_S)
        remove_group(path, deadline)
