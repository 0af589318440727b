"""The jail of a terminal: the same workspace, user and limits as an execution's, and a shell."""

from __future__ import annotations

import os

from jail.profile import Bind, Limits, Profile, WindowSize
from runner.execution.profile import BASE_ENV, WORKSPACE, Identity
from runner.settings import Settings

#: What a client that says nothing is taken for (DEC VT100).
DEFAULT_SIZE = WindowSize(columns=80, rows=24)
#: bash as a login shell, else whatever sh is; looked for where it will run.
LOGIN_SHELL = (
    "/bin/sh",
    "-c",
    'SHELL=$(command -v bash || command -v sh); export SHELL; exec "$SHELL" -l',
)
ENV = {
    **BASE_ENV,
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "PS1": r"\[\e[32m\]sandbox\[\e[0m\]:\[\e[34m\]\w\[\e[0m\]$ ",
    # What was typed is not a file of the session's: it would be an output of the next execution.
    "HISTFILE": "/tmp/.shell_history",  # noqa: S108 - the jail's private tmpfs
    "LESSHISTFILE": "-",
    "PYTHON_HISTORY": "/tmp/.python_history",  # noqa: S108 - the same
    "NODE_REPL_HISTORY": "",
}


def profile(settings: Settings, identity: Identity, *, workspace: str, size: WindowSize) -> Profile:
    """For a whole working day, so CPU time is not counted; memory and processes as ever. Pure."""
    wall_ms = round(settings.terminal_total_timeout * 1000)
    return Profile(
        argv=LOGIN_SHELL,
        cwd=WORKSPACE,
        env=ENV,
        uid=identity.uid,
        gid=identity.gid,
        limits=Limits(
            wall_ms=wall_ms,
            cpu_ms=wall_ms * (os.cpu_count() or 1),
            memory_bytes=settings.memory_limit,
            pids=settings.pids_limit,
            # It has no streams.
            output_bytes=1,
        ),
        binds=(Bind(workspace, WORKSPACE, writable=True),),
        network=identity.network,
        terminal=size,
    )
