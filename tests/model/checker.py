"""A breadth-first explorer of finite models: every reachable state, every invariant in each.

What lives here: the search, and nothing that knows what is being modelled. A model is a set of
initial states, a next-state relation whose steps carry the name of their action, and named
invariants. States are hashable values; two states are one if they compare equal.

The figures mean what TLC's mean, so that both can be compared: `distinct` counts states, `depth`
counts levels of the search with the initial states on level 1. Because the search is breadth
first, the trace of a broken invariant is a shortest one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple, Generic[S]):
    """One state of a trace and the action that led there (`Init` for the first)."""

    action: str
    state: S


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Generic[S]):
    """What is to be explored."""

    initial: tuple[S, ...]
    #: Every step that may be taken from a state: the action's name and the state it leads to.
    successors: Callable[[S], Iterable[tuple[str, S]]]
    invariants: Mapping[str, Callable[[S], bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Generic[S]):
    """What the exploration found.

    After a violation the figures cover only what had been explored until then.
    """

    #: How many initial states the model has.
    initial: int
    distinct: int
    depth: int
    #: How often each action was taken, over all distinct states: an action that is missing here
    #: was never possible, and whatever was proved about it is empty.
    taken: Mapping[str, int]
    #: Every distinct state that was seen.
    states: Collection[S]
    #: The broken invariant, or None when all hold in every reachable state.
    violated: str | None = None
    #: The shortest way to the violation, the initial state included.
    trace: tuple[Step[S], ...] = field(default=())

    @property
    def holds(self) -> bool:
        return self.violated is None

    @property
    def generated(self) -> int:
        """How many states were reached, each as often as it was: TLC's "states generated"."""
        return self.initial + sum(self.taken.values())

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of the trace, in order, without the initial state."""
        return tuple(step.action for step in self.trace[1:])


class StateSpaceError(AssertionError):
    """The model has more states than its author allowed for: most often an unbounded counter."""


def check(model: Model[S], *, at_most: int = 2_000_000) -> Report[S]:
    """Explore `model` until it is exhausted or an invariant breaks.

    Raises `StateSpaceError` beyond `at_most` distinct states.
    """
    came_from: dict[S, Step[S] | None] = {}
    taken: Counter[str] = Counter()
    depth = 0
    level: list[S] = []
    arriving: Iterator[tuple[S, Step[S] | None]] = ((state, None) for state in model.initial)
    while True:
        level = []
        for state, origin in arriving:
            if origin is not None:
                taken[origin.action] += 1
            if state in came_from:
                continue
            if len(came_from) >= at_most:
                raise StateSpaceError(f"more than {at_most} distinct states")
            came_from[state] = origin
            level.append(state)
            broken = _first_broken(model, state)
            if broken is not None:
                return Report(
                    initial=len(model.initial),
                    distinct=len(came_from),
                    depth=depth + 1,
                    taken=taken,
                    states=came_from.keys(),
                    violated=broken,
                    trace=_trace(came_from, state),
                )
        if not level:
            return Report(
                initial=len(model.initial),
                distinct=len(came_from),
                depth=depth,
                taken=taken,
                states=came_from.keys(),
            )
        depth += 1
        arriving = _steps_from(model, level)


def _steps_from(model: Model[S], level: list[S]) -> Iterator[tuple[S, Step[S] | None]]:
    for state in level:
        for action, reached in model.successors(state):
            yield reached, Step(action, state)


def _first_broken(model: Model[S], state: S) -> str | None:
    return next((name for name, holds in model.invariants.items() if not holds(state)), None)


def _trace(came_from: Mapping[S, Step[S] | None], last: S) -> tuple[Step[S], ...]:
    """Walk back from `last`; `came_from` holds the action and the state before it."""
    backwards: list[Step[S]] = []
    state = last
    while (origin := came_from[state]) is not None:
        backwards.append(Step(origin.action, state))
        state = origin.state
    backwards.append(Step("Init", state))
    return tuple(reversed(backwards))
