"""What an execution may use: settings are ceilings, a runtime row lowers them, a request asks less.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from image.runtimes import Runtime
from jail.profile import MEMORY_MIN, Limits
from runner.errors import BadRequest, LimitExceeded
from runner.execution.transcript import StageName
from runner.settings import Settings
from runner.wire import ExecuteRequest

#: The fields of a request that ask for a limit, without `run_` or `compile_`.
ASKABLE = ("timeout", "cpu_time", "memory_limit")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most that each stage may use; `compile` is None for a runtime that does not compile."""

    run: Limits
    compile: Limits | None

    def of(self, stage: StageName) -> Limits | None:
        """The ceilings of one stage."""
        return self.run if stage == "run" else self.compile

    def fields(self) -> dict[str, int]:
        """By the names under which a request asks for them, and those that it cannot ask for."""
        named = {"pids": self.run.pids, "output": self.run.output_bytes}
        for stage in ("run", "compile"):
            limits = self.of(stage)
            if limits is not None:
                named |= {f"{stage}_{field}": _value(limits, field) for field in ASKABLE}
        return named


def ceilings(runtime: Runtime, settings: Settings, *, cpus: int) -> Ceilings:
    """The lower of what the settings and the runtime's row allow."""
    own = runtime.limits

    def stage(timeout: float, own_timeout: float | None) -> Limits:
        wall_ms = round(_lower(timeout, own_timeout) * 1000)
        return Limits(
            wall_ms=wall_ms,
            # Every CPU may be busy until the wall limit.
            cpu_ms=wall_ms * cpus,
            memory_bytes=int(_lower(settings.memory_limit, own.memory)),
            pids=int(_lower(settings.pids_limit, own.pids)),
            output_bytes=settings.output_limit,
        )

    return Ceilings(
        run=stage(settings.run_timeout, own.run_timeout),
        compile=stage(settings.compile_timeout, own.compile_timeout) if runtime.compile else None,
    )


def chosen(request: ExecuteRequest, stage: StageName, ceiling: Limits) -> Limits:
    """What the request asks for, and the ceiling where it asks nothing. Raises `LimitExceeded`, and
    `BadRequest` for less memory than a jail can start with."""

    def pick(name: str) -> int:
        field = f"{stage}_{name}"
        asked: int | None = getattr(request, field)
        most = _value(ceiling, name)
        if asked is not None and asked > most:
            raise LimitExceeded(f"at most {most}", field=field, reason="above_ceiling")
        if asked is not None and name == "memory_limit" and asked < MEMORY_MIN:
            raise BadRequest(
                f"at least {MEMORY_MIN}, which a jail takes to start",
                field=field,
                reason="below_floor",
            )
        return most if asked is None else asked

    return Limits(
        wall_ms=pick("timeout"),
        cpu_ms=pick("cpu_time"),
        memory_bytes=pick("memory_limit"),
        pids=ceiling.pids,
        output_bytes=ceiling.output_bytes,
    )


def _value(limits: Limits, field: str) -> int:
    return {
        "timeout": limits.wall_ms,
        "cpu_time": limits.cpu_ms,
        "memory_limit": limits.memory_bytes,
    }[field]


def _lower(setting: float, own: float | None) -> float:
    return setting if own is None else min(setting, own)
