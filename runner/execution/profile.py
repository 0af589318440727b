"""From a plan to the jails of its two stages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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
    assert plan.compile_limits is not None
    return _profile(
        plan,
        place,
        identity,
        argv=plan.runtime.compile_argv(
            [f"{WORKSPACE}/{source}" for source in plan.sources], build=BUILD
        ),
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
        # Absolute, so that a file whose name begins with `-` is never an option.
        argv=(*plan.runtime.run_argv(f"{WORKSPACE}/{plan.entry}", build=BUILD), *plan.args),
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
