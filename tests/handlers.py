"""What a handler can read of its request, and with which statuses it can answer, from its source.

Followed from function to function through `runner.api`, with the names that each hands on. What
cannot be followed is an error: a handler has to be written so that this can be told.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from runner.api import archives, bodies, headers
from tests.syntax import parsed

#: Where a request says something, as the contract calls it.
PLACES = {"headers": "header", "query": "query", "match_info": "path"}
#: Other ways to the same, which nobody here goes.
HIDDEN = {"cookies", "raw_headers", "rel_url", "url", "query_string", "path_qs", "post", "json"}
#: Responses, and the status of one that says none.
STATUS = {web.Response: 200, web.StreamResponse: 200, web.WebSocketResponse: 101}
UNKNOWN = object()


class UnreadableError(AssertionError):
    """It cannot be told what is read here."""


@dataclass(slots=True)
class Found:
    """What was found in a handler and all that it calls."""

    read: set[tuple[str, str]] = field(default_factory=set)
    statuses: set[int] = field(default_factory=set)
    media: set[str] = field(default_factory=set)
    takes_body: bool = False


def found_in(handler: Callable[..., Any], *, package: str = "runner.api") -> Found:
    """Everything that `handler` reaches in `package`."""
    walk = _Walk(package)
    walk.function(handler, {})
    return walk.found


class _Walk:
    def __init__(self, package: str) -> None:
        self._package = package
        self._been: set[str] = set()
        self.found = Found()

    def function(self, function: Callable[..., Any], bound: Mapping[str, Any]) -> None:
        function = inspect.unwrap(function)
        visit = f"{function.__module__}.{function.__qualname__} {sorted(bound.items(), key=str)}"
        if visit in self._been:
            return
        self._been.add(visit)
        if function in (bodies.whole, bodies.chunks):
            self.found.takes_body = True
        tree = parsed(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
        _Body(self, function, bound).read(tree)

    def reached(self, thing: Any, bound: Mapping[str, Any]) -> None:
        """Something that a function names."""
        if inspect.ismethod(thing):
            thing = thing.__func__
        if not (getattr(thing, "__module__", None) or "").startswith(self._package):
            return
        if inspect.isfunction(thing):
            self.function(thing, bound)
        elif inspect.isclass(thing):
            self.found.takes_body |= thing is archives.Archives
            for member in vars(thing).values():
                function = inspect.unwrap(getattr(member, "__func__", member))
                # What a dataclass is given has no source, and reads no request.
                if inspect.isfunction(function) and function.__code__.co_filename != "<string>":
                    self.reached(function, {})


class _Body:
    """One function's body, with what its parameters are known to be."""

    def __init__(self, walk: _Walk, function: Callable[..., Any], bound: Mapping[str, Any]) -> None:
        self._walk = walk
        self._where = f"{function.__module__}.{function.__qualname__}"
        self._names = {**function.__globals__, **dict.fromkeys(_locals(function), UNKNOWN), **bound}

    def read(self, tree: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        nodes = [node for statement in tree.body for node in ast.walk(statement)]
        said = {id(node): place for node in nodes if (place := _place(node))}
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            for source, name in _reads(node):
                if id(source) in said:
                    self._read(said.pop(id(source)), name)
            if isinstance(node, ast.Attribute) and node.attr == "route":
                # Of `match_info`: which row of the table it is, and nothing that the request says.
                said.pop(id(node.value), None)
            if isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Name | ast.Attribute) and id(node) not in called:
                self._walk.reached(self._value(node), {})
        if said:
            raise UnreadableError(f"{self._where} hands its request's {said.popitem()[1]} on")

    def _read(self, place: str, name: ast.expr) -> None:
        value = self._value(name)
        if not isinstance(value, str):
            raise UnreadableError(f"{self._where} reads {place} {ast.unparse(name)}")
        self._walk.found.read.add((place, value))

    def _call(self, call: ast.Call) -> None:
        function = self._value(call.func)
        if isinstance(function, type) and function in STATUS:
            self._answers(call, STATUS[function])
        elif function is headers.require_media_type:
            self._walk.found.media.update(self._spread(call.args[1:]))
        if not callable(function) or function is UNKNOWN:
            return
        bound = {}
        if inspect.isfunction(function):
            parameters = inspect.signature(function).parameters
            bound = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
            given = dict(zip(parameters, call.args, strict=False))
            given |= {each.arg: each.value for each in call.keywords if each.arg}
            bound |= {name: self._value(each) for name, each in given.items()}
            bound = {n: v for n, v in bound.items() if isinstance(v, str | int | frozenset)}
        self._walk.reached(function, bound)

    def _answers(self, call: ast.Call, unsaid: int) -> None:
        said = [each.value for each in call.keywords if each.arg == "status"]
        for status in self._ways(said[0]) if said else (unsaid,):
            if not isinstance(status, int):
                raise UnreadableError(f"{self._where} answers {ast.unparse(call)}")
            self._walk.found.statuses.add(int(status))

    def _ways(self, node: ast.expr) -> Iterator[Any]:
        if isinstance(node, ast.IfExp):
            yield from self._ways(node.body)
            yield from self._ways(node.orelse)
        else:
            value = self._value(node)
            yield from value if isinstance(value, frozenset) else (value,)

    def _spread(self, nodes: list[ast.expr]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                value = self._value(node.value)
                yield from value if isinstance(value, tuple) else ()
            else:
                yield self._value(node)

    def _value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._names.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            of = self._value(node.value)
            return UNKNOWN if of is UNKNOWN else getattr(of, node.attr, UNKNOWN)
        if isinstance(node, ast.IfExp):
            return frozenset(self._ways(node))
        return UNKNOWN


def _locals(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames + code.co_cellvars + code.co_freevars


def _place(node: ast.AST) -> str | None:
    """Of `request.headers` and its like."""
    if not isinstance(node, ast.Attribute):
        return None
    of = node.value
    name = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
    if name.lstrip("_") != "request":
        return None
    if node.attr in HIDDEN:
        raise UnreadableError(f"a handler reads {ast.unparse(node)}")
    return PLACES.get(node.attr)


def _reads(node: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
    """What is read of what: `x.get(n)`, `x.getall(n, …)`, `x[n]` and `n in x`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr in ("get", "getall", "getone"):
            yield node.func.value, node.args[0]
    elif isinstance(node, ast.Subscript):
        yield node.value, node.slice
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        yield node.comparators[0], node.left
