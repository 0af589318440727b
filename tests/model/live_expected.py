"""What the model says a live session has to be after each request.

What lives here: the way of every request through `session_model`, step by step, and the files and
metadata that go with it. Pure. `live` does the same to a real daemon; `test_live` compares.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from runner.session.lifecycle import Operation, State
from tests.model.live_words import RAN, RAN_LINE, Answer, Run, Tree, digest
from tests.model.session_hold import moved
from tests.model.session_model import session
from tests.model.session_world import NONE, Files, Note, World

#: As many as a run may need: the live test is no search.
SUCCESSORS = session(incarnations=1 << 30).successors


class Expected:
    """The session as it has to be."""

    def __init__(self) -> None:
        self.world = World()
        self.tree = Tree()
        #: Of the last execute that was answered: the names of its outputs.
        self.delivered: list[str] = []

    def copy(self) -> Expected:
        return copy.deepcopy(self)

    @property
    def state(self) -> State:
        return self.world.vm.state

    def expects(self, client: int) -> int:
        """The incarnation that the client sends as X-Expected-Incarnation, or NONE."""
        return self.world.clients[client].expects

    def take(self, client: int, *actions: str) -> None:
        """Moves the model by these steps; each has to be possible, for this client alone."""
        for action in actions:
            other = self.world.clients[1 - client]
            reached = {
                after
                for name, after in SUCCESSORS(self.world)
                if name == action
                and all(hold.client == client for hold in after.vm.holds)
                and after.clients[1 - client]._replace(unanswered=None)
                == other._replace(unanswered=None)
            }
            assert len(reached) == 1, f"{action} cannot be taken, or not alone: {self.world}"
            self.world = reached.pop()

    # What comes before every operation

    def _refused(self, client: int, operation: Operation) -> Answer | None:
        vm = self.world.vm
        is_unbound = vm.state in {State.UNBOUND, State.TERMINATED}
        if is_unbound and operation is Operation.CHECKPOINT:
            # It never binds, and there is nothing of which to say that it is another.
            return Answer.UNBOUND
        if self.expects(client) not in {NONE, vm.incarnation}:
            self.take(client, "Mismatch")
            return Answer.MISMATCH
        if is_unbound:
            self.take(client, "Bind")
            self.tree = Tree()
        if self.state is State.DIRTY and operation is not Operation.RESTORE:
            return Answer.DIRTY
        return None

    def _booted(self, client: int) -> None:
        """The first use provisions."""
        if self.state is State.FRESH:
            self.take(client, "BeginBoot", "RunHooks")
            self._hooks()
            self.take(client, "Done")

    def _hooks(self) -> None:
        ran = self.tree.files.get(RAN, b"") + RAN_LINE
        self.tree.files[RAN] = ran
        self.tree.surfaced[RAN] = digest(ran)

    def _missing(self, client: int, operation: Operation) -> bool:
        """The workspace is not there; whoever uses it next finds out."""
        if self.world.vm.files is not Files.MISSING:
            return False
        self.take(client, f"Begin{operation.title()}", "Missing")
        return True

    # The operations

    def boot(self, client: int) -> Answer:
        refused = self._refused(client, Operation.BOOT)
        if refused is None:
            self._booted(client)
        return refused or Answer.OK

    def execute(
        self, client: int, run: Run, *, delivered: bool = True, repeated: bool = False
    ) -> Answer:
        """`delivered`: the client has the result. `repeated`: it asked twice, with a key."""
        refused = self._refused(client, Operation.EXECUTE)
        if refused is not None:
            return refused
        self._booted(client)
        if self._missing(client, Operation.EXECUTE):
            return Answer.DIRTY
        self.take(client, "BeginExecute", "Place", "Placed")
        self._ran(run)
        if repeated:
            self.take(client, "DoneUnanswered", "BeginExecute", "Place", "Placed")
        if delivered:
            self._deliver()
        self.take(client, "Done")
        return Answer.OK

    def _ran(self, run: Run) -> None:
        tree, code = self.tree, run.code.encode()
        tree.files[run.script] = code
        tree.primed[run.script] = digest(code)
        tree.files[run.writes] = tree.files.get(run.writes, b"") + run.adds

    def _deliver(self) -> None:
        tree = self.tree
        made = {path: digest(content) for path, content in tree.files.items()}
        new = {
            path: sha256
            for path, sha256 in made.items()
            if tree.surfaced.get(path) != sha256 and tree.primed.get(path) != sha256
        }
        tree.surfaced |= new
        self.delivered = sorted(new)

    def execute_without_input(self, client: int) -> Answer:
        refused = self._refused(client, Operation.EXECUTE)
        if refused is not None:
            return refused
        self._booted(client)
        if self._missing(client, Operation.EXECUTE):
            return Answer.DIRTY
        self.take(client, "BeginExecute", "Undone")
        return Answer.NO_INPUT

    def execute_dies(self, client: int, run: Run) -> None:
        """The daemon is killed while the program runs, and started again."""
        self.take(client, "BeginExecute", "Place", "Placed")
        self._ran(run)
        self.restart()

    def put(self, client: int, path: str, content: bytes) -> Answer:
        refused = self._refused(client, Operation.EDIT)
        if refused is not None:
            return refused
        self._booted(client)
        if self._missing(client, Operation.EDIT):
            return Answer.DIRTY
        self.take(client, "BeginEdit", "Place", "Placed", "Done")
        self.tree.files[path] = content
        self.tree.surfaced[path] = digest(content)
        return Answer.OK

    def attach(self, client: int) -> Answer:
        """A terminal, which its client leaves again."""
        refused = self._refused(client, Operation.ATTACH)
        if refused is not None:
            return refused
        self._booted(client)
        if self._missing(client, Operation.ATTACH):
            return Answer.DIRTY
        self.take(client, "BeginAttach", "Done", "GuestLeaves")
        return Answer.OK

    def checkpoint(self, client: int) -> tuple[Answer, Tree | None]:
        refused = self._refused(client, Operation.CHECKPOINT)
        if refused is not None:
            return refused, None
        self._booted(client)
        if self._missing(client, Operation.CHECKPOINT):
            return Answer.DIRTY, None
        self.take(client, "BeginCheckpoint", "Done")
        return Answer.OK, copy.deepcopy(self.tree)

    def restore(self, client: int, tree: Tree) -> Answer:
        refused = self._refused(client, Operation.RESTORE)
        if refused is not None:
            return refused
        self.take(client, "BeginRestore", "BodyBegins", "Exchange", "Done")
        self.tree = copy.deepcopy(tree)
        self._booted(client)
        return Answer.OK

    def restore_fails(self, client: int) -> Answer:
        """It was corrupt, or cut."""
        refused = self._refused(client, Operation.RESTORE)
        if refused is not None:
            return refused
        self.take(client, "BeginRestore", "BodyBegins", "RestoreFails", "Wiped")
        self.tree = Tree()
        return Answer.CORRUPT

    def restore_dies(self, client: int) -> None:
        self.take(client, "BeginRestore", "BodyBegins")
        self.tree = Tree()
        self.restart()

    def terminate(self, *, wiped: bool = True) -> Answer:
        if self.state is not State.TERMINATED:
            self._platform_takes("Terminate" if wiped else "CannotTerminate")
        if not wiped:
            return Answer.INTERNAL
        self.tree = Tree()
        return Answer.OK

    def _platform_takes(self, action: str) -> None:
        """As a client that expects nothing."""
        before = self.world.clients[0]
        self._expect_nothing()
        self.take(0, action)
        self.world = moved(self.world, 0, before)

    # What befalls it

    def boot_dies(self) -> Iterator[Expected]:
        """What may be there when the daemon was killed in the first boot of a session."""
        yield self
        came = [["BeginBoot"], ["BeginBoot", "RunHooks"], ["BeginBoot", "RunHooks", "Done"]]
        for actions, is_noted in ((0, False), (1, False), (1, True), (2, True)):
            each = self.copy()
            each._expect_nothing()
            each.take(0, "Bind", *came[actions])
            if actions:
                each._hooks()
                each.tree.surfaced = each.tree.surfaced if is_noted else {}
            each.restart()
            yield each

    def _expect_nothing(self) -> None:
        """Client 0 begins anew."""
        self.world = moved(self.world, 0, self.world.clients[0]._replace(expects=NONE))

    def restart(self) -> None:
        """The daemon is killed, and started again on the same disk."""
        if self.world.vm.incarnation == NONE:
            return
        self.take(0, "Die")
        restarts = {name for name, _ in SUCCESSORS(self.world)} & {
            "Restart",
            "RestartWipes",
            "RestartDirty",
        }
        self.take(0, restarts.pop())

    def disk_lost(self) -> None:
        """The daemon is killed, and started again on an empty disk."""
        if self.world.vm.incarnation != NONE:
            self.take(0, "VmLost")
        else:
            self.world = self.world._replace(vm=World().vm)
        self.tree = Tree()

    def workspace_lost(self) -> None:
        self.take(0, "VolumeLost")
        self.tree.files = {}

    def is_open_to(self, client: int) -> bool:
        """Whether an execute of this client would run."""
        vm = self.world.vm
        return (
            self.expects(client) in {NONE, vm.incarnation}
            and vm.state is not State.DIRTY
            and vm.files is not Files.MISSING
        )

    @property
    def dirty(self) -> str | None:
        """The reason that is told of a dirty session."""
        if self.state is not State.DIRTY:
            return None
        return self.world.vm.note.value or Note.MISSING.value
