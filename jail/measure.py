"""Makes `Facts` of what a supervision saw. Decides nothing: numbers in, numbers out."""

from __future__ import annotations

from jail.facts import Captured, Counters, Ending, Enforcement, Facts
from jail.report import Kind
from jail.supervise import Supervision

_NOTHING = Captured(b"", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
#: Statuses of jail/native/launch.c.
_LAUNCH_STATUS = {
    120: "launch",
    121: "parent_gone",
    122: "cgroup",
    123: "nsjail_missing",
    124: "network",
}


def not_started(enforcement: Enforcement, failure: str, ended_by: Ending | None) -> Facts:
    """Facts of a jail that never got as far as an nsjail process."""
    return Facts(
        started=False,
        exec_errno=None,
        wait_status=None,
        nsjail_status=None,
        nsjail_log=(),
        ended_by=ended_by,
        wall_ns=0,
        cpu_ns=0,
        memory_peak_bytes=0,
        counters=Counters(),
        enforcement=enforcement,
        stdout=_NOTHING,
        stderr=_NOTHING,
        proven_empty=True,
        setup_failure=failure,
    )


def measured(supervision: Supervision, enforcement: Enforcement, ended_by: Ending | None) -> Facts:
    """Facts of a jail that had an nsjail process."""
    started = supervision.report(Kind.STARTED)
    exited = supervision.report(Kind.EXITED)
    exec_failed = supervision.report(Kind.EXEC_FAILED)
    wall_ns = 0
    if started is not None:
        over_at_ns = exited.at_ns if exited is not None else supervision.over_at_ns
        wall_ns = max(over_at_ns - started.at_ns, 0)
    cpu_ns, peak_bytes = _usage(supervision)
    return Facts(
        started=started is not None,
        exec_errno=exec_failed.value if exec_failed is not None else None,
        wait_status=exited.value if exited is not None else None,
        nsjail_status=supervision.watch.nsjail_status,
        nsjail_log=supervision.log.lines,
        ended_by=ended_by,
        wall_ns=wall_ns,
        cpu_ns=cpu_ns,
        memory_peak_bytes=peak_bytes,
        counters=supervision.counters,
        enforcement=enforcement,
        stdout=supervision.stdout.captured,
        stderr=supervision.stderr.captured,
        proven_empty=supervision.proven_empty,
        setup_failure=None if started or exec_failed else _setup_failure(supervision, ended_by),
        before=supervision.before,
    )


def _usage(supervision: Supervision) -> tuple[int, int]:
    """CPU time and peak memory: of the cgroup, and of what was reaped where that says more."""
    exited = supervision.report(Kind.EXITED)
    usage = supervision.watch.nsjail_usage
    counters = supervision.counters
    cpu_ns = peak_bytes = 0
    if exited is not None:
        cpu_ns, peak_bytes = exited.cpu_ns, exited.max_rss_bytes
    elif usage is not None and counters.cpu_ns is None:
        # Of a namespace that was killed the kernel adds up what its init left unreaped.
        cpu_ns, peak_bytes = int((usage.ru_utime + usage.ru_stime) * 1e9), usage.ru_maxrss * 1024
    if counters.cpu_ns is not None:
        # The reaped usage is exact for a short command; the cgroup also counts what was killed.
        cpu_ns = max(cpu_ns, counters.cpu_ns - supervision.watch.setup_cpu_ns)
    if counters.memory_peak_bytes is not None:
        peak_bytes = counters.memory_peak_bytes
    return cpu_ns, peak_bytes


def _setup_failure(supervision: Supervision, ended_by: Ending | None) -> str:
    if supervision.setup_failure is not None:
        return supervision.setup_failure
    if ended_by is not None:
        return ended_by.value
    if supervision.report(Kind.INIT_FAILED) is not None:
        return "init"
    status = supervision.watch.nsjail_status
    if status is not None and not status & 0x7F:
        return _LAUNCH_STATUS.get(status >> 8, "nsjail")
    return "nsjail"
