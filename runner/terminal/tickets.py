"""Tickets: leave to open one terminal, for a browser that can send no header with its upgrade.

One use, short-lived, bound to a session and its incarnation, kept in memory only. Whoever holds one
needs no token, so what is kept of it is a hash: reading memory or a log gives nobody a ticket.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from runner.errors import Overloaded, Unauthorized

LIFETIME_S = 30.0
#: Far more than a person opens terminals in that time.
OPEN_MAX = 64


@dataclass(frozen=True, slots=True)
class Ticket:
    """What it stands for."""

    session: str
    incarnation: str
    expires_at: float


class Tickets:
    """Those that have been given out and neither used nor expired."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[bytes, Ticket] = {}

    def issue(self, *, session: str, incarnation: str) -> str:
        """A new ticket's word. Raises `Overloaded`."""
        now = self._clock()
        self._open = {key: each for key, each in self._open.items() if each.expires_at > now}
        if len(self._open) >= OPEN_MAX:
            raise Overloaded("too many tickets are unused", retry_after=1)
        word = secrets.token_urlsafe(32)
        self._open[_key(word)] = Ticket(session, incarnation, now + LIFETIME_S)
        return word

    def redeem(self, word: str) -> Ticket:
        """What the ticket stood for; it is used up. Raises `Unauthorized`."""
        ticket = self._open.pop(_key(word), None)
        if ticket is None or ticket.expires_at <= self._clock():
            raise Unauthorized("the ticket is unknown, used or expired", reason="ticket")
        return ticket


def _key(word: str) -> bytes:
    return hashlib.sha256(word.encode("utf-8", "surrogateescape")).digest()
