"""From a plan to the jails of its two stages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jail.profile import Bind, Limits, Network, Profile
from runner.execution.request import Plan

#: Where jailed code sees its workspace: a fixed point of the wire contract.
WORKSPACE = "/mnt/data"
#: Where both stages of one execution see what the compiler made.
BUILD = "/mnt/build"

BASE_ENV: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": WORKSPACE,
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108 - the jail's private tmpfs
}


@dataclass(frozen=True, slots=True)
class Place:
    """The host directories that an execution's jails see; `build` only with a compile stage."""

    workspace: str
    build: str | None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the jailed code is, and what network it has."""

    uid: int
    gid: int
    network: Network


def compile_profile(plan: Plan, place: Place, identity: Identity) -> Profile:
    """The compile stage: the build directory is writable, and so is the workspace."""
    assert plan.runtime.compile is not None
    assert plan.compile_limits is not None
    return _profile(
        plan,
        place,
        identity,
        argv=_fill(plan.runtime.compile, plan),
        limits=plan.compile_limits,
        build_writable=True,
        stdin=b"",
    )


def run_profile(plan: Plan, place: Place, identity: Identity) -> Profile:
    """The run stage: the request's args and stdin; the build directory is read-only."""
    return _profile(
        plan,
        place,
        identity,
        argv=(*_fill(plan.runtime.run, plan), *plan.args),
        limits=plan.run_limits,
        build_writable=False,
        stdin=plan.stdin,
    )


def _profile(
    plan: Plan,
    place: Place,
    identity: Identity,
    *,
    argv: tuple[str, ...],
    limits: Limits,
    build_writable: bool,
    stdin: bytes,
) -> Profile:
    binds = [Bind(place.workspace, WORKSPACE, writable=True)]
    if place.build is not None:
        binds.append(Bind(place.build, BUILD, writable=build_writable))
    return Profile(
        argv=argv,
        cwd=WORKSPACE,
        env={**BASE_ENV, **plan.runtime.env, **plan.env},
        uid=identity.uid,
        gid=identity.gid,
        limits=limits,
        binds=tuple(binds),
        network=identity.network,
        stdin=stdin,
    )


def _fill(template: Sequence[str], plan: Plan) -> tuple[str, ...]:
    """Fills {entry}, {sources} and {build}; a source list becomes that many arguments.

    Paths are given absolute, so that a file whose name begins with `-` is never an option.
    """
    filled: list[str] = []
    for word in template:
        if word == "{sources}":
            filled.extend(f"{WORKSPACE}/{source}" for source in plan.sources)
        else:
            filled.append(
                word.replace("{entry}", f"{WORKSPACE}/{plan.entry}").replace("{build}", BUILD)
            )
    return tuple(filled)
