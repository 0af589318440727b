"""Starts nsjail in a fresh cgroup and leaves it waiting for its configuration on a pipe.

Everything slow is in this part: the kernel's grace period when a process enters a v1 memory group,
and nsjail's dynamic linking. It needs to know nothing of the profile, so it can be done ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from dataclasses import dataclass

from jail.cgroup import Cgroup, Cgroups
from jail.network import NetworkNamespace

#: Above the daemon's: when the whole VM runs short the guest goes first.
OOM_SCORE_ADJ = 500


class SpawnFailed(Exception):
    """nsjail could not be started; `step` is a short word for what was refused."""

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step


@dataclass(slots=True)
class Descriptor:
    """A descriptor with one owner; closing it twice does nothing."""

    number: int

    def close(self) -> None:
        """Closes it if it is open."""
        if self.number >= 0:
            number, self.number = self.number, -1
            os.close(number)


@dataclass(slots=True)
class Spawned:
    """A started nsjail and our ends of all that leads to it, non-blocking."""

    pid: int
    pidfd: Descriptor
    cgroup: Cgroup
    config: Descriptor
    stdin: Descriptor
    stdout: Descriptor
    stderr: Descriptor
    log: Descriptor
    reports: socket.socket
    #: The number under which init inherits its end of `reports`.
    report_fd: int
    #: The network that nsjail is already in; None: it is to make an empty one.
    network: NetworkNamespace | None

    def close(self) -> None:
        """Closes every descriptor."""
        for each in (self.config, self.stdin, self.stdout, self.stderr, self.log, self.pidfd):
            each.close()
        self.reports.close()

    def kill(self) -> None:
        """SIGKILL to nsjail itself; it is our child and not reaped, so the handle is its own."""
        if self.pidfd.number < 0:
            # It has been let go of: it was killed before that.
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd.number, signal.SIGKILL)


async def spawn(
    *,
    launch: str,
    nsjail: str,
    cgroups: Cgroups,
    owner: tuple[int, int],
    network: NetworkNamespace | None = None,
) -> Spawned:
    """Raises SpawnFailed. `owner` is the UID and GID that may reopen the standard streams.

    To be called in the main thread: PR_SET_PDEATHSIG follows the thread that spawned, not the
    process, and the jail is to die with the daemon.
    """
    try:
        cgroup = await asyncio.to_thread(cgroups.create, None)
    except OSError as error:
        raise SpawnFailed("cgroup") from error
    try:
        return _spawn_in(cgroup, network, launch=launch, nsjail=nsjail, owner=owner)
    except OSError as error:
        await asyncio.to_thread(cgroup.remove)
        raise SpawnFailed("spawn") from error


def _spawn_in(
    cgroup: Cgroup,
    network: NetworkNamespace | None,
    *,
    launch: str,
    nsjail: str,
    owner: tuple[int, int],
) -> Spawned:
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:

        def pipe(*, we_read: bool) -> tuple[Descriptor, int]:
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            mine, yours = (read_end, write_end) if we_read else (write_end, read_end)
            os.set_blocking(mine, False)
            theirs.callback(os.close, yours)
            descriptor = Descriptor(mine)
            ours.callback(descriptor.close)
            return descriptor, yours

        config, config_theirs = pipe(we_read=False)
        stdin, stdin_theirs = pipe(we_read=False)
        stdout, stdout_theirs = pipe(we_read=True)
        stderr, stderr_theirs = pipe(we_read=True)
        # A pipe belongs to its maker, and whoever opens /dev/stderr opens it anew.
        for number in (stdin_theirs, stdout_theirs, stderr_theirs):
            os.fchown(number, *owner)
        log, log_theirs = pipe(we_read=True)
        # Datagrams: a report arrives whole or not at all.
        reports, reports_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.callback(reports.close)
        theirs.callback(reports_theirs.close)
        reports.setblocking(False)
        procs = cgroup.open_procs()
        for number in procs:
            theirs.callback(os.close, number)

        report_fd = reports_theirs.fileno()
        net = [] if network is None else [network.descriptor]
        inherited = [config_theirs, log_theirs, report_fd, *procs, *net]
        arguments = [
            launch,
            *("--parent", str(os.getpid()), "--log-fd", str(log_theirs)),
            *("--oom-score-adj", str(OOM_SCORE_ADJ)),
            *(word for number in procs for word in ("--cgroup-fd", str(number))),
            *(word for number in net for word in ("--net-fd", str(number))),
            *("--", nsjail, "--log_fd", str(log_theirs), "--pass_fd", str(report_fd)),
            *("-C", f"/proc/self/fd/{config_theirs}"),
        ]
        file_actions = [
            (os.POSIX_SPAWN_DUP2, stdin_theirs, 0),
            (os.POSIX_SPAWN_DUP2, stdout_theirs, 1),
            (os.POSIX_SPAWN_DUP2, stderr_theirs, 2),
            # Onto itself: clears close-on-exec (POSIX.1-2024, posix_spawn_file_actions_adddup2).
            *((os.POSIX_SPAWN_DUP2, number, number) for number in inherited),
        ]
        # An empty environment: nothing of the daemon's, and nothing for the dynamic linker.
        pid = os.posix_spawn(launch, arguments, {}, file_actions=file_actions)
        try:
            pidfd = Descriptor(os.pidfd_open(pid))
        except OSError:
            # No descriptor left. It is our child and not reaped: the number is still its own.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        ours.pop_all()
    return Spawned(
        pid, pidfd, cgroup, config, stdin, stdout, stderr, log, reports, report_fd, network
    )
