"""The ground that the stories of `live_story` stand on: one daemon, what is expected, and the two
compared.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine, initialize

from runner.session.lifecycle import State
from tests.model.live import Live, Seen, answer
from tests.model.live_expected import Expected
from tests.model.live_words import Answer, Run, Tree, digest
from tests.model.session_world import NONE, Files

T = TypeVar("T")


class Compared(RuleBasedStateMachine):
    """A state machine without rules. The daemon is one for all of a run's stories."""

    live: ClassVar[Live]
    loop: ClassVar[asyncio.AbstractEventLoop]
    steps: ClassVar[int] = 0
    starts: ClassVar[Counter[str]]
    numbers: ClassVar[Iterator[int]] = itertools.count()

    @initialize()
    def begin(self) -> None:
        """A VM that belongs to nobody."""
        self.expected = Expected()
        #: The daemon's name of each incarnation of the model.
        self.names: dict[int, str] = {}
        self.archives: list[tuple[bytes, Tree]] = []
        self.since_start = 0
        self.answers(self.live.terminate(), self.expected.terminate())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs what is asynchronous."""
        return self.loop.run_until_complete(work)

    def answers(self, work: Coroutine[Any, Any, Answer], wanted: Answer) -> None:
        """Asks the daemon; its answer and all there is to see are as expected."""
        got = self.do(work)
        assert got == wanted, f"{got} instead of {wanted}"
        self.compare()

    def compare(self) -> None:
        """What is to be seen is what is expected."""
        type(self).steps += 1
        self.since_start += 1
        seen, wanted = self._look(self.expected)
        assert seen == wanted

    def fits(self, expected: Expected) -> bool:
        """Whether this is what is to be seen."""
        seen, wanted = self._look(expected)
        return seen == wanted

    def _look(self, expected: Expected) -> tuple[Seen, Seen]:
        vm, tree = expected.world.vm, expected.tree
        seen = self.do(self.live.look(tree.surfaced))
        if vm.incarnation not in self.names and seen.incarnation not in self.names.values():
            self.names[vm.incarnation] = str(seen.incarnation)
        is_listed = vm.state in {State.READY, State.FRESH} and vm.files is not Files.MISSING
        wanted = Seen(
            state=vm.state.value,
            incarnation=self.names[vm.incarnation] if vm.incarnation != NONE else None,
            dirty=expected.dirty,
            files={path: digest(content) for path, content in tree.files.items()}
            if is_listed
            else None,
            primed=tree.primed,
            surfaced=tree.surfaced,
        )
        if not is_listed or (seen.files is None and not tree.files):
            # What is gone, dirty, or not made yet is not listed.
            seen = replace(seen, files=wanted.files)
        return seen, wanted

    def guard(self, client: int) -> str | None:
        """What the client sends as X-Expected-Incarnation."""
        expects = self.expected.expects(client)
        return None if expects == NONE else self.names[expects]

    def is_mistaken(self, client: int) -> bool:
        """Whether the client expects an incarnation that is gone."""
        return self.expected.expects(client) not in {NONE, self.expected.world.vm.incarnation}

    def archive(self, which: int) -> tuple[bytes, Tree]:
        """One of the last checkpoints."""
        return self.archives[-1 - which % len(self.archives)]

    def unique(self, run: Run, *, then: str) -> Run:
        """The same, but for what it adds, which nobody else ever did."""
        return replace(run, adds=f"<{next(self.numbers)}>".encode(), then=then)

    def started(self, after: str) -> None:
        """The daemon has been started anew, `after` what befell it."""
        self.starts[after] += 1
        self.compare()
        self.since_start = 0

    def half(
        self, kind: str, client: int, run: Run, which: int
    ) -> tuple[Callable[[], Awaitable[Answer]], Callable[[Expected], Answer]]:
        """One of two requests that are made at once: how it is asked, and what is expected."""
        live, guard = self.live, self.guard(client)

        async def execute() -> Answer:
            return answer(await live.execute(guard, run))

        async def checkpoint() -> Answer:
            return (await live.checkpoint(guard))[0]

        if kind in {"restore", "corrupt"} and self.archives:
            archive, tree = self.archive(which)
            if kind == "restore":
                return (
                    lambda: live.restore(guard, archive),
                    lambda expected: expected.restore(client, tree),
                )
            return (
                lambda: live.restore(guard, archive[:-9]),
                lambda expected: expected.restore_fails(client),
            )
        if kind == "execute":
            return execute, lambda expected: expected.execute(client, run)
        if kind == "checkpoint":
            return checkpoint, lambda expected: expected.checkpoint(client)[0]
        if kind == "no input":
            return (
                lambda: live.execute_without_input(guard),
                lambda expected: expected.execute_without_input(client),
            )
        return lambda: live.boot(guard), lambda expected: expected.boot(client)
