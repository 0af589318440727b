"""The real daemon goes where the model goes: random requests and accidents, compared at each step.

make model                       10,000 steps; MODEL_STEPS and MODEL_SEED choose others
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.figures import Say
from tests.leftovers import assert_nothing_left
from tests.model.live import Live
from tests.model.live_story import Story

#: In the suite. A step is a request or an accident, and a look at everything.
STEPS, SEED = 250, 31
#: Steps of one story.
STORY = 40


@pytest.fixture
def story() -> Iterator[type[Story]]:
    root = Path(tempfile.mkdtemp(prefix="sandbox-runner-test-", dir="/dev/shm"))
    with asyncio.Runner() as runner:
        told = type(
            "ToldStory",
            (Story,),
            {"live": Live(root), "loop": runner.get_loop(), "starts": Counter()},
        )
        runner.run(told.live.daemon.start())
        try:
            yield told
            runner.run(told.live.daemon.stop())
            runner.run(assert_nothing_left(told.live.daemon.data_root))
        finally:
            shutil.rmtree(root, ignore_errors=True)


@pytest.mark.timeout(4 * 3600)
def test_the_daemon_goes_where_the_model_goes(story: type[Story], say: Say) -> None:
    wanted = int(os.environ.get("MODEL_STEPS", STEPS))
    chosen = int(os.environ.get("MODEL_SEED", SEED))
    began = time.monotonic()
    for following in itertools.count(chosen):
        if story.steps >= wanted:
            break
        run_state_machine_as_test(
            seed(following)(story),
            settings=settings(
                max_examples=-(-(wanted - story.steps) // STORY),
                stateful_step_count=STORY,
                phases=(Phase.generate,),
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    seconds = time.monotonic() - began
    say(
        f"the daemon and the model: {story.steps} steps alike, seed {chosen}, {seconds:.0f} s, "
        f"starts after {dict(story.starts)}"
    )
