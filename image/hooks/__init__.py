"""The image's boot hooks: which there are, in which order. Runs nothing."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

#: The hooks that come with this package.
DEFAULT_DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot.d")

_NAME = re.compile(r"[0-9A-Za-z._-]+")


class HooksError(Exception):
    """The hooks directory cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One executable of the hooks directory, by its name there."""

    name: str


@dataclass(frozen=True, slots=True)
class Hooks:
    """A directory and its hooks, in the order in which they run."""

    directory: str
    hooks: tuple[Hook, ...]


def find(directory: str | None = None) -> Hooks:
    """The executables of `directory`, by name. Raises `HooksError` if it cannot be listed.

    A file that is not executable is a README or a mistake; run-parts(8) passes over it too.
    """
    chosen = directory or DEFAULT_DIRECTORY
    try:
        names = sorted(name for name in os.listdir(chosen) if _NAME.fullmatch(name))
        found = [name for name in names if _is_executable(os.path.join(chosen, name))]
        is_open = os.stat(chosen).st_mode & stat.S_IXOTH
    except OSError as error:
        raise HooksError(f"cannot list {chosen}") from error
    if found and not is_open:
        raise HooksError(f"{chosen} has to let others in: its hooks run as the session's user")
    return Hooks(chosen, tuple(Hook(name) for name in found))


def _is_executable(path: str) -> bool:
    mode = os.stat(path).st_mode
    # Others' bit: the jail's user is nobody of the host's.
    return stat.S_ISREG(mode) and bool(mode & stat.S_IXOTH)
