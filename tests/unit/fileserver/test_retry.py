"""When a transfer is tried again."""

from __future__ import annotations

import pytest

from runner.fileserver.retry import ATTEMPTS, RETRIED, Failure, delay, of_status


@pytest.mark.parametrize("failure", Failure)
def test_only_broken_connections_and_5xx_are_tried_again(failure: Failure) -> None:
    again = failure in (Failure.UNREACHABLE, Failure.SERVER_FAILED, Failure.TRUNCATED)
    assert (failure in RETRIED) == again
    assert (delay(1, failure, random=0.5) is not None) == again


def test_tries_are_bounded_and_further_and_further_apart() -> None:
    waits = [delay(n, Failure.UNREACHABLE, random=0.5) for n in range(1, ATTEMPTS + 2)]
    made = [wait for wait in waits if wait is not None]
    assert waits[ATTEMPTS - 1 :] == [None, None] and len(made) == ATTEMPTS - 1
    assert made == sorted(made) and made[0] > 0 and sum(made) < 2


def test_delays_are_spread() -> None:
    low = delay(1, Failure.UNREACHABLE, random=0.0)
    high = delay(1, Failure.UNREACHABLE, random=0.999)
    assert low is not None and high is not None and high > 2 * low > 0


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (200, None),
        (201, None),
        (204, None),
        (301, Failure.REDIRECTED),
        (304, Failure.REDIRECTED),
        (400, Failure.REFUSED),
        (403, Failure.REFUSED),
        (404, Failure.NOT_FOUND),
        (429, Failure.REFUSED),
        (500, Failure.SERVER_FAILED),
        (503, Failure.SERVER_FAILED),
    ],
)
def test_what_a_status_means(status: int, failure: Failure | None) -> None:
    assert of_status(status) is failure
