"""Tickets are used once, and soon."""

from __future__ import annotations

import pytest

from runner.errors import Overloaded, Unauthorized
from runner.terminal.tickets import LIFETIME_S, OPEN_MAX, Tickets


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_ticket_is_good_once() -> None:
    tickets = Tickets()
    word = tickets.issue(session="s", incarnation="i")
    ticket = tickets.redeem(word)
    assert (ticket.session, ticket.incarnation) == ("s", "i")
    with pytest.raises(Unauthorized):
        tickets.redeem(word)


def test_a_ticket_expires() -> None:
    clock = Clock()
    tickets = Tickets(clock=clock)
    early, late = (tickets.issue(session="s", incarnation="i") for _ in range(2))
    clock.now += LIFETIME_S - 0.1
    tickets.redeem(early)
    clock.now += 0.1
    with pytest.raises(Unauthorized):
        tickets.redeem(late)


@pytest.mark.parametrize("word", ["", "x", "\udcff", "a" * 10_000])
def test_what_is_no_ticket_is_refused(word: str) -> None:
    tickets = Tickets()
    tickets.issue(session="s", incarnation="i")
    with pytest.raises(Unauthorized):
        tickets.redeem(word)


def test_unused_tickets_are_bounded_and_make_room_when_they_expire() -> None:
    clock = Clock()
    tickets = Tickets(clock=clock)
    for _ in range(OPEN_MAX):
        tickets.issue(session="s", incarnation="i")
    with pytest.raises(Overloaded):
        tickets.issue(session="s", incarnation="i")
    clock.now += LIFETIME_S
    tickets.issue(session="s", incarnation="i")


def test_nothing_of_a_ticket_is_kept_that_could_be_used() -> None:
    tickets = Tickets()
    word = tickets.issue(session="s", incarnation="i")
    assert word not in repr(vars(tickets))
