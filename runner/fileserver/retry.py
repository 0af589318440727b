"""When a transfer is tried again, and how long before. Pure."""

from __future__ import annotations

from enum import StrEnum

#: Tries altogether.
ATTEMPTS = 3
_FIRST_DELAY = 0.1
_FACTOR = 4


class Failure(StrEnum):
    """Why a transfer failed. These go over the wire, as reasons."""

    #: No connection, or it broke.
    UNREACHABLE = "unreachable"
    #: 5xx.
    SERVER_FAILED = "server_failed"
    #: The body ended before it was whole.
    TRUNCATED = "truncated"
    #: 404: the object is not there, and asking again does not bring it.
    NOT_FOUND = "not_found"
    #: Any other 4xx: the grant is not good for it.
    REFUSED = "refused"
    #: 3xx: never followed. It would carry the grant to whoever the answer names.
    REDIRECTED = "redirected"
    #: What came is not HTTP, or not as long as it says.
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    TIMED_OUT = "timed_out"


#: A 404 is an answer and a slow server is not helped by more requests.
RETRIED = frozenset((Failure.UNREACHABLE, Failure.SERVER_FAILED, Failure.TRUNCATED))


class TransferFailed(Exception):
    """The object did not come, or did not get there."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.value)
        self.failure = failure

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.failure in RETRIED or self.failure is Failure.TIMED_OUT


def delay(attempt: int, failure: Failure, *, random: float) -> float | None:
    """Seconds to wait after try number `attempt` (from 1) failed; None: do not try again.

    `random` in [0, 1) spreads the clients of a server that has just come back.
    """
    if failure not in RETRIED or attempt >= ATTEMPTS:
        return None
    return float(_FIRST_DELAY * _FACTOR ** (attempt - 1) * (0.5 + random))


def of_status(status: int) -> Failure | None:
    """What an answer's status means; None for success."""
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return Failure.REDIRECTED
    if status >= 500:
        return Failure.SERVER_FAILED
    return Failure.NOT_FOUND if status == 404 else Failure.REFUSED
