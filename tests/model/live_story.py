"""Stories of one session after the other: requests and accidents, as random as they come.

What lives here: the rules. How each is compared with the model is in `live_compared`. No rule has
a precondition: which of two requests at once comes first is the daemon's choice, and what may be
drawn must not depend on it. A rule that makes no sense where the story stands does less.
"""

from __future__ import annotations

import asyncio

from hypothesis import strategies as st
from hypothesis.stateful import rule

from runner.session.lifecycle import State
from tests.model.live import answer
from tests.model.live_compared import Compared
from tests.model.live_words import RAN, Answer, Run
from tests.model.session_world import Files

#: A start of the daemon takes as long as ten other steps.
STEPS_BETWEEN_STARTS = 8

CLIENT = st.integers(0, 1)
RUN = st.builds(Run, st.sampled_from(["in-1", "in-2"]), st.sampled_from("abc"), st.just(b"x"))
#: Which of the checkpoints taken so far, counted from the last.
WHICH = st.integers(0, 3)
#: One of two requests that are made at once.
HALF = st.sampled_from(["boot", "execute", "checkpoint", "restore", "corrupt", "no input"])
#: What is under way when the daemon dies; `disk`: nothing, and the disk goes with it.
DEATHS = ["nothing", "execute", "restore", "boot", "disk"]


class Story(Compared):
    """Every rule is one step, and ends with everything compared."""

    # Requests

    @rule(client=CLIENT)
    def boot(self, client: int) -> None:
        self.answers(self.live.boot(self.guard(client)), self.expected.boot(client))

    @rule(client=CLIENT, run=RUN)
    def execute(self, client: int, run: Run) -> None:
        reply = self.do(self.live.execute(self.guard(client), run))
        wanted = self.expected.execute(client, run)
        assert answer(reply) == wanted
        if wanted is Answer.OK:
            assert [file["name"] for file in reply.json["files"]] == self.expected.delivered
        self.compare()

    @rule(client=CLIENT)
    def execute_without_input(self, client: int) -> None:
        asked = self.live.execute_without_input(self.guard(client))
        self.answers(asked, self.expected.execute_without_input(client))

    @rule(client=CLIENT, path=st.sampled_from("abc"), content=st.binary(max_size=3))
    def put(self, client: int, path: str, content: bytes) -> None:
        asked = self.live.put(self.guard(client), path, content)
        self.answers(asked, self.expected.put(client, path, content))

    @rule(client=CLIENT)
    def attach(self, client: int) -> None:
        guard = self.guard(client)
        wanted = self.expected.attach(client)
        got, ran = self.do(self.live.attach(guard, is_let_in=wanted is Answer.OK))
        assert got == wanted
        if wanted is Answer.OK:
            assert ran.encode() == self.expected.tree.files[RAN]
        self.compare()

    @rule(client=CLIENT)
    def checkpoint(self, client: int) -> None:
        got, archive = self.do(self.live.checkpoint(self.guard(client)))
        wanted, tree = self.expected.checkpoint(client)
        assert got == wanted
        if tree is not None:
            self.archives.append((archive, tree))
        self.compare()

    @rule(client=CLIENT, which=WHICH)
    def restore(self, client: int, which: int) -> None:
        if not self.archives:
            return self.checkpoint(client)
        archive, tree = self.archive(which)
        asked = self.live.restore(self.guard(client), archive)
        return self.answers(asked, self.expected.restore(client, tree))

    @rule(client=CLIENT, which=WHICH, where=st.floats(0.1, 0.9))
    def restore_what_is_damaged(self, client: int, which: int, where: float) -> None:
        if not self.archives:
            return self.checkpoint(client)
        damaged = bytearray(self.archive(which)[0])
        damaged[int(len(damaged) * where)] ^= 0x10
        asked = self.live.restore(self.guard(client), bytes(damaged))
        return self.answers(asked, self.expected.restore_fails(client))

    @rule(client=CLIENT, which=WHICH)
    def leave_a_restore(self, client: int, which: int) -> None:
        if not self.archives:
            return self.checkpoint(client)
        if self.is_mistaken(client):
            return self.restore(client, which)
        archive, _ = self.archive(which)

        async def leave() -> None:
            asked = await self.live.begin_restore(self.guard(client), archive)
            asked.cancel()
            await self.live.until(lambda state: state != "restoring")

        self.do(leave())
        self.expected.restore_fails(client)
        return self.compare()

    @rule(client=CLIENT, which=WHICH)
    def restore_by_another_media_type(self, client: int, which: int) -> None:
        """Refused before it begins."""
        if not self.archives:
            return self.checkpoint(client)
        archive, _ = self.archive(which)
        asked = self.live.restore(self.guard(client), archive, media_type="text/plain")
        return self.answers(asked, Answer.MEDIA_TYPE)

    @rule(client=CLIENT, run=RUN)
    def leave_an_execute(self, client: int, run: Run) -> None:
        if not self.expected.is_open_to(client):
            return self.execute(client, run)
        unique = self.unique(run, then="sleep 60")

        async def leave() -> None:
            await self.live.execute_and_leave(self.guard(client), unique, key=None)
            await self.live.until(lambda state: state == "ready")

        self.do(leave())
        self.expected.execute(client, unique, delivered=False)
        return self.compare()

    @rule(client=CLIENT, run=RUN)
    def ask_again_for_an_execute(self, client: int, run: Run) -> None:
        """The reply is lost, and the client repeats the request with its key."""
        if not self.expected.is_open_to(client):
            return self.execute(client, run)
        unique = self.unique(run, then="sleep 0.1")
        guard = self.guard(client)
        key = unique.adds.decode()
        self.do(self.live.execute_and_leave(guard, unique, key=key))
        reply = self.do(self.live.execute(guard, unique, key=key))
        assert answer(reply) == self.expected.execute(client, unique, repeated=True)
        assert [file["name"] for file in reply.json["files"]] == self.expected.delivered
        return self.compare()

    @rule(first=HALF, second=HALF, run=RUN, other=RUN, which=WHICH)
    def two_at_once(self, first: str, second: str, run: Run, other: Run, which: int) -> None:
        """They come one after the other, in either order."""
        asked = [self.half(first, 0, run, which), self.half(second, 1, other, which)]

        async def both() -> list[Answer]:
            return list(await asyncio.gather(*(ask() for ask, _ in asked)))

        got = self.do(both())
        foreseen = []
        for order in ((0, 1), (1, 0)):
            expected = self.expected.copy()
            wanted = {half: asked[half][1](expected) for half in order}
            foreseen.append(expected)
            if got == [wanted[0], wanted[1]] and self.fits(expected):
                self.expected = expected
                self.compare()
                return
        raise AssertionError(f"{first} and {second} were answered {got}, in neither order")

    # Accidents

    @rule()
    def terminate(self) -> None:
        self.answers(self.live.terminate(), self.expected.terminate())

    @rule()
    def terminate_in_vain(self) -> None:
        is_there = (self.live.daemon.data_root / "workspace").exists()
        if not is_there or self.expected.state not in {State.READY, State.FRESH}:
            return self.boot(0)
        return self.answers(self.live.terminate_in_vain(), self.expected.terminate(wiped=False))

    @rule(how=st.sampled_from(DEATHS), client=CLIENT, run=RUN, which=WHICH, ms=st.integers(0, 80))
    def die(self, how: str, client: int, run: Run, which: int, ms: int) -> None:
        """The daemon is killed, and another one starts."""
        if self.since_start < STEPS_BETWEEN_STARTS:
            return self.execute(client, run)
        if how == "disk":
            self.do(self.live.disk_lost())
            self.expected.disk_lost()
        elif how == "boot":
            self._die_in_a_boot(ms / 1000)
        elif how == "execute" and self._made_ready(client):
            self._die_in_an_execute(client, self.unique(run, then="sleep 60"))
        elif how == "restore" and self._made_ready(client):
            self._die_in_a_restore(client, which)
        else:
            self.do(self.live.restart())
            self.expected.restart()
        return self.started(how)

    def _made_ready(self, client: int) -> bool:
        """So that nothing but the operation itself is cut, and there is an archive."""
        for _ in range(2):  # A mistaken client learns of it first.
            self.boot(client)
        if not self.archives:
            self.checkpoint(client)
        return self.expected.is_open_to(client)

    def _die_in_an_execute(self, client: int, run: Run) -> None:
        async def die() -> None:
            asked = asyncio.create_task(self.live.execute(self.guard(client), run))
            await self.live.wrote(run)
            await self.live.die_under(asked)

        self.do(die())
        self.expected.execute_dies(client, run)

    def _die_in_a_restore(self, client: int, which: int) -> None:
        archive, _ = self.archive(which)

        async def die() -> None:
            await self.live.die_under(await self.live.begin_restore(self.guard(client), archive))

        self.do(die())
        self.expected.restore_dies(client)

    def _die_in_a_boot(self, seconds: float) -> None:
        """Wherever it has come to by then."""
        self.terminate()

        async def die() -> None:
            asked = asyncio.create_task(self.live.boot(None))
            await asyncio.sleep(seconds)
            await self.live.die_under(asked)

        self.do(die())
        self.expected = next(
            (each for each in self.expected.boot_dies() if self.fits(each)), self.expected
        )

    @rule(odds=st.integers(0, 3))
    def lose_the_workspace(self, odds: int) -> None:
        # Not too often: the session is dirty from then on.
        is_there = self.expected.world.vm.files is not Files.MISSING
        if odds or self.expected.state is not State.READY or not is_there:
            return self.boot(0)
        self.live.workspace_lost()
        self.expected.workspace_lost()
        return self.compare()
