"""What Prometheus is told. Names and labels are stable; no label holds what a caller chose."""

from __future__ import annotations

import asyncio
import threading

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from runner.session.lifecycle import State

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LAGS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """A registry of its own, so that two runners in one process do not share their counts."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        # The daemon's own memory, descriptors and CPU time.
        ProcessCollector(registry=self._registry)
        self._threads = Gauge("runner_threads", "The daemon's threads.", registry=self._registry)
        self._tasks = Gauge("runner_tasks", "Asyncio tasks under way.", registry=self._registry)
        self._requests = Counter(
            "runner_requests",
            "Requests answered; 499 is a client that left.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._request_seconds = Histogram(
            "runner_request_seconds",
            "From the request's head to the end of its response.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._outcomes = Counter(
            "runner_outcomes",
            "Stages by what ended them.",
            ["stage", "kind", "fault"],
            registry=self._registry,
        )
        self._executing = Gauge(
            "runner_executing", "Executions under way.", registry=self._registry
        )
        self._terminals = Gauge(
            "runner_terminals", "Terminals with a live shell.", registry=self._registry
        )
        self._state = Gauge(
            "runner_session_state",
            "1 for the state the session is in.",
            ["state"],
            registry=self._registry,
        )

        self._lag = Histogram(
            "runner_loop_lag_seconds",
            "How late the event loop was, probed while requests are under way.",
            buckets=_LAGS,
            registry=self._registry,
        )
        self._lag_max = Gauge(
            "runner_loop_lag_max_seconds",
            "The latest that the event loop ever was.",
            registry=self._registry,
        )
        self._latest = 0.0

    def loop_lag(self, seconds: float) -> None:
        """The event loop was so late."""
        self._lag.observe(seconds)
        if seconds > self._latest:
            self._latest = seconds
            self._lag_max.set(seconds)

    def request(self, *, method: str, route: str, status: int, seconds: float) -> None:
        """One request is done."""
        # A method is the caller's text; only those of the route table are worth a series.
        named = method if method in ("GET", "POST", "PUT", "DELETE") else "other"
        self._requests.labels(named, route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def outcome(self, *, stage: str, kind: str, fault: str) -> None:
        """One stage has ended."""
        self._outcomes.labels(stage, kind, fault).inc()

    def executing(self, change: int) -> None:
        """Executions began (+1) or ended (-1)."""
        self._executing.inc(change)

    def render(self, state: State, *, terminals: int) -> bytes:
        """The exposition, in Prometheus text format."""
        self._terminals.set(terminals)
        for each in State:
            self._state.labels(each.value).set(1 if each is state else 0)
        self._threads.set(threading.active_count())
        self._tasks.set(len(asyncio.all_tasks()))
        return generate_latest(self._registry)
