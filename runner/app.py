"""Wiring, and THE route table: path, method, who may call, what it asks of the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from runner.api import (
    boot,
    checkpoint,
    console,
    execute,
    file_edits,
    files,
    health,
    hooks,
    inputs,
    metrics,
    middleware,
    openapi,
    restore,
    runtimes,
    terminal,
)
from runner.api.contract import Access
from runner.context import RUNNER, Runner
from runner.openapi import document
from runner.session.lifecycle import TABLE, Operation, State

#: Existing control planes of the Piston family call the same routes below this prefix.
COMPATIBLE_PREFIX = "/api/v2"


@dataclass(frozen=True, slots=True)
class Route:
    """One row. `operation` is what it asks of a session, if it asks anything."""

    method: str
    path: str
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    access: Access = Access.TOKEN
    operation: Operation | None = None

    @property
    def states(self) -> frozenset[State]:
        """The states in which its operation may start; a first use binds and boots before that."""
        return frozenset[State]().union(
            *(row.states for row in TABLE if row.operation is self.operation)
        )


ROUTES: tuple[Route, ...] = (
    # A platform's probe carries no token, and the answer tells a stranger nothing but readiness.
    Route("GET", "/health", health.get, Access.ANYONE),
    Route("HEAD", "/health", health.head, Access.ANYONE),
    Route("POST", "/execute", execute.post, operation=Operation.EXECUTE),
    # Ends it without waiting for the session that it holds. A key may contain any character.
    Route("DELETE", "/execute/{id:.+}", execute.delete),
    Route("GET", "/session/checkpoint", checkpoint.get, operation=Operation.CHECKPOINT),
    Route("POST", "/session/restore", restore.post, operation=Operation.RESTORE),
    Route("POST", "/session/boot", boot.post, operation=Operation.BOOT),
    Route("GET", "/session/boot", boot.get),
    # What is pushed ahead belongs to no session: a key is known only to who knows the object.
    Route("POST", "/session/inputs/probe", inputs.probe),
    Route("POST", "/session/inputs", inputs.push),
    # Reading files waits for no lock: a listing is a look, and looks are no-follow.
    Route("GET", "/session/files", files.list_files),
    Route("GET", "/session/files/{path:.+}", files.download),
    Route("PUT", "/session/files/{path:.+}", file_edits.put, operation=Operation.EDIT),
    Route("DELETE", "/session/files/{path:.+}", file_edits.delete, operation=Operation.EDIT),
    # A browser sends no header of ours with an upgrade: a ticket stands for token and session.
    Route("GET", "/session/terminal", terminal.get, Access.TICKET, operation=Operation.ATTACH),
    Route("POST", "/session/terminal/ticket", terminal.issue_ticket),
    # The page asks for the token; without one its files are no more than what npm and git have.
    Route("GET", "/console", console.page, Access.ANYONE),
    Route("GET", "/console/{name:.+}", console.asset, Access.ANYONE),
    Route("GET", "/runtimes", runtimes.get),
    # The platform speaks to these from its own side of the proxy.
    Route("POST", f"{hooks.PREFIX}/ready", hooks.ready),
    Route("POST", f"{hooks.PREFIX}/validate", hooks.validate),
    Route("POST", f"{hooks.PREFIX}/run", hooks.run, operation=Operation.BIND),
    Route("POST", f"{hooks.PREFIX}/suspend", hooks.suspend),
    Route("POST", f"{hooks.PREFIX}/resume", hooks.resume),
    Route("POST", f"{hooks.PREFIX}/terminate", hooks.terminate, operation=Operation.TERMINATE),
    Route("GET", "/metrics", metrics.get),
    Route("GET", "/openapi.json", openapi.get),
)


def _paths(access: Access) -> frozenset[str]:
    """As aiohttp calls a path of the table: `{name:.+}` is `{name}` to it."""
    return frozenset(
        prefix + route.path.replace(":.+}", "}")
        for route in ROUTES
        for prefix in ("", COMPATIBLE_PREFIX)
        if route.access is access
    )


def make_app(runner: Runner) -> web.Application:
    """The application: every route of the table at the root and below the compatible prefix."""
    app = web.Application(
        middlewares=[middleware.wide_event, middleware.errors, middleware.authority],
        client_max_size=runner.settings.body_max_bytes,
    )
    app[RUNNER] = runner
    app[middleware.OPEN_PATHS] = _paths(Access.ANYONE)
    app[middleware.TICKET_PATHS] = _paths(Access.TICKET)
    for route in ROUTES:
        for prefix in ("", COMPATIBLE_PREFIX):
            # HEAD would hold a session and stream a body for nothing: only /health has it.
            app.router.add_route(route.method, prefix + route.path, route.handler)
    app[openapi.DOCUMENT] = document(ROUTES)
    inputs.prepare(app)
    console.prepare(app, runner.settings)
    app.on_response_prepare.append(middleware.name_response)
    return app
