"""What a thread returns is lost when its waiter is cancelled: what owns something is disposed of.

A descriptor or a directory that comes out of a thread belongs to nobody if the client has left
meanwhile. So a result that is used comes through `finish(..., dispose=...)`, or from a function
that is listed here because its results own nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax import parsed

ROOT = Path(__file__).parents[2]
PACKAGES = ("runner", "jail")

#: Whose results are numbers, texts and plain records.
OWN_NOTHING = {
    "jail/process.py": {"freeze.begin"},
    "jail/network.py": {"self._firewall.refresh", "netlink.remove"},
    "jail/supervise.py": {"self.cgroup.wait_empty", "self.cgroup.remove"},
    "runner/api/execute.py": {"digest"},
    "runner/api/file_edits.py": {"_put"},
    "runner/api/files.py": {"_list", "_read"},
    "runner/execution/boot.py": {"self._owed"},
    "runner/execution/delivery.py": {"space.collect", "_inline_all", "read"},
    "runner/execution/executions.py": {"encode"},
    "runner/execution/executor.py": {"space.present", "self._storage_full"},
    "runner/finish.py": {"function", "dispose"},  # The door itself.
    "runner/health.py": {"machine"},
    "runner/inputs/resolve.py": {"self._cache.evict"},
    "runner/session/saving.py": {"_plan_in_thread"},
    "runner/session/session.py": {"end"},
    "runner/terminal/terminals.py": {"self._data.workspace_inode"},
    "runner/vm/machine.py": {"clock.correct", "entropy.reseed", "self._resume", "self._terminate"},
    "runner/wiring.py": {"runtimes.load", "hooks.find"},
}
#: Whose results own something, where a cancelled waiter can be nothing but the daemon's end.
DAEMONS_OWN = {
    "jail/spawn.py": {"cgroups.create"},  # In the tasks of jails and of spares, which are shielded.
    "runner/server.py": {"JailHost.open"},
    "runner/wiring.py": {"adopt", "InputCache"},
}


def lossy(source: str) -> Iterator[tuple[int, str]]:
    """Line and function of each result that is used, comes from a thread and has no `dispose`."""
    module = parsed(source)
    parents = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}
    named = _named(module)
    for node in ast.walk(module):
        function = _in_thread(node) or _finished(node, named)
        if function is None:
            continue
        outer = parents[node]
        if _called(outer) == "finish":
            continue  # Looked at there.
        if isinstance(outer, ast.Assign) and _is_finished_later(outer, module):
            continue
        if isinstance(outer, ast.Await) and isinstance(parents[outer], ast.Expr):
            continue  # Nobody has the result.
        if not _disposes(node):
            yield node.lineno, ast.unparse(function)


def _called(node: ast.AST) -> str | None:
    """The last name of what is called."""
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    return getattr(function, "attr", None) or getattr(function, "id", None)


def _in_thread(node: ast.AST) -> ast.expr | None:
    """What a thread is given to do."""
    at = {"to_thread": 0, "finish_in_thread": 0, "run_in_executor": 1}.get(_called(node) or "")
    return node.args[at] if at is not None and isinstance(node, ast.Call) else None


def _named(module: ast.AST) -> dict[str, ast.expr]:
    """Names that stand for a coroutine of a thread."""
    return {
        target.id: function
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and (function := _in_thread(node.value)) is not None
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_finished_later(assigned: ast.Assign, module: ast.AST) -> bool:
    names = {target.id for target in assigned.targets if isinstance(target, ast.Name)}
    return any(
        _called(node) == "finish"
        and isinstance(node, ast.Call)
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id in names
        for node in ast.walk(module)
    )


def _finished(node: ast.AST, named: dict[str, ast.expr]) -> ast.expr | None:
    """What `finish` runs to its end: in a thread, or a coroutine of our own."""
    if _called(node) != "finish" or not isinstance(node, ast.Call) or not node.args:
        return None
    work = node.args[0]
    if isinstance(work, ast.Name):
        return named.get(work.id, work)
    return _in_thread(work) or (work.func if isinstance(work, ast.Call) else work)


def _disposes(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(each.arg == "dispose" for each in node.keywords)


def listed(module: str) -> set[str]:
    return OWN_NOTHING.get(module, set()) | DAEMONS_OWN.get(module, set())


def modules() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text("utf-8")


def test_nothing_that_a_thread_returns_is_lost() -> None:
    found = [
        f"{module}:{line}: {function}"
        for module, source in modules()
        for line, function in lossy(source)
        if function not in listed(module)
    ]
    assert not found, "give finish() a `dispose`, or list the function if its result owns nothing"


def test_nothing_is_listed_that_is_not_there() -> None:
    sources = dict(modules())
    for module in OWN_NOTHING | DAEMONS_OWN:
        assert listed(module) == {function for _, function in lossy(sources[module])}, module


@pytest.mark.parametrize(
    "source",
    [
        "fd = await asyncio.to_thread(create, parts)",
        "fd = await finish(asyncio.to_thread(create, parts))",
        "fd = await finish_in_thread(create, parts)",
        "fd: int = await finish(asyncio.to_thread(create))",
        "return await loop.run_in_executor(worker, create)",
        "making = asyncio.to_thread(create)\nfd = await finish(making)",
        "making = asyncio.to_thread(create)\nfd = await making",
        "use(await finish(create()))",
        "task = asyncio.create_task(asyncio.to_thread(create))",
        "return finish(asyncio.to_thread(create))",
    ],
)
def test_the_lint_sees(source: str) -> None:
    assert [function for _, function in lossy(_in_function(source))] == ["create"]


@pytest.mark.parametrize(
    "source",
    [
        "await asyncio.to_thread(remove, parts)",
        "await finish(asyncio.to_thread(remove, parts))",
        "await finish(self._leave())",
        "fd = await finish(asyncio.to_thread(create, parts), dispose=os.close)",
        "making = asyncio.to_thread(create)\nfd = await finish(making, dispose=os.close)",
        "await loop.run_in_executor(worker, clear)",
        "stored = await pushed.finish()",
    ],
)
def test_the_lint_lets_pass(source: str) -> None:
    assert list(lossy(_in_function(source))) == []


def _in_function(source: str) -> str:
    return "async def f():\n" + "".join(f"    {line}\n" for line in source.splitlines())
