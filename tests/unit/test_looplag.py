"""The probe sees what holds the loop up, and only while somebody is there to be held up."""

from __future__ import annotations

import asyncio
import time

from runner.looplag import INTERVAL, LoopLag
from runner.metrics import Metrics
from runner.session.lifecycle import State


async def test_a_loop_that_is_held_up_is_seen() -> None:
    seen: list[float] = []
    with LoopLag(seen.append).watched():
        await asyncio.sleep(3 * INTERVAL)
        time.sleep(0.08)
        await asyncio.sleep(3 * INTERVAL)
    assert max(seen) > 0.08 - INTERVAL - 0.001


async def test_what_holds_it_up_to_the_very_end_is_seen() -> None:
    seen: list[float] = []
    with LoopLag(seen.append).watched():
        time.sleep(0.08)
    assert max(seen) > 0.06


async def test_nobody_is_woken_while_nothing_is_under_way() -> None:
    seen: list[float] = []
    lag = LoopLag(seen.append)
    with lag.watched(), lag.watched():
        await asyncio.sleep(3 * INTERVAL)
    assert seen
    seen.clear()
    await asyncio.sleep(5 * INTERVAL)
    assert not seen


async def test_the_metrics_have_the_worst_of_it() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.2, 0.01):
        metrics.loop_lag(seconds)
    text = metrics.render(State.READY, terminals=0).decode()
    assert "runner_loop_lag_max_seconds 0.2\n" in text
    assert 'runner_loop_lag_seconds_bucket{le="0.05"} 2.0\n' in text
