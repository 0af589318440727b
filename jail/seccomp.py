"""The seccomp policy of a jail as Kafel text: one source, rendered for one architecture.

The policy itself and its reasons are in `seccomp.kafel`. Here is only the choice of its sections:
`// ONLY <machine>` to `// END` is kept for that machine and dropped for every other. nsjail
compiles the text; a policy it cannot compile ends it with status 255 before anything runs.
"""

from __future__ import annotations

import platform
from functools import cache
from importlib import resources

from jail.errors import UnknownMachine

#: As `uname -m` says them.
MACHINES = ("x86_64", "aarch64")

_ONLY = "// ONLY "
_END = "// END"


def policy_text(machine: str | None = None) -> str:
    """The policy for `machine` (default: this one). Raises `UnknownMachine`."""
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise UnknownMachine(f"no seccomp policy for {machine!r}, only for {', '.join(MACHINES)}")
    return select_sections(_source(), machine)


def select_sections(source: str, machine: str) -> str:
    """`source` without the sections of other machines and without the marker lines. Pure.

    Raises ValueError where a section names no machine we know, opens inside another, or does not
    end: a policy with a hole in it must not be rendered.
    """
    kept: list[str] = []
    section: str | None = None
    for number, line in enumerate(source.splitlines(), start=1):
        if line.startswith(_ONLY):
            if section is not None:
                raise ValueError(f"line {number}: a section inside the section of {section}")
            section = line.removeprefix(_ONLY).strip()
            if section not in MACHINES:
                raise ValueError(f"line {number}: a section of the unknown machine {section!r}")
        elif line.rstrip() == _END:
            if section is None:
                raise ValueError(f"line {number}: the end of a section that was not opened")
            section = None
        elif section in (None, machine):
            kept.append(line)
    if section is not None:
        raise ValueError(f"the section of {section} does not end")
    return "\n".join(kept) + "\n"


@cache
def _source() -> str:
    return resources.files("jail").joinpath("seccomp.kafel").read_text("utf-8")
