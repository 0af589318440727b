"""What a caller is to do about a failure, by its typed fields alone. Pure.

A message is for people: names that users chose may stand in it, and a repository called
`request-timeout` is no time-out. docs/recovery.md is made from this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runner import errors
from runner.errors import RunnerError


class Course(StrEnum):
    """What is done next."""

    #: The same request, on the same VM.
    REPEAT = "repeat"
    #: The last checkpoint into a new VM, and the request there.
    RESTORE = "restore"
    #: The same request has no future anywhere.
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Advice:
    """For one failure. `how` is for people; programs go by `course`.

    Where `reason` is given it is for that one only, and the rest of the failure has another.
    """

    failure: type[RunnerError]
    course: Course
    how: str
    reason: str | None = None


def by_flags(*, retryable: bool, recycle: bool) -> Course:
    """What the two flags of an error body say when its code is not known."""
    if recycle:
        return Course.RESTORE
    return Course.REPEAT if retryable else Course.GIVE_UP


def _advice(failure: type[RunnerError], how: str, course: Course | None = None) -> Advice:
    """`course` only where there is more to know than the flags say."""
    flagged = by_flags(retryable=failure.retryable, recycle=failure.recycle)
    return Advice(failure, course or flagged, how)


ADVICE: tuple[Advice, ...] = (
    _advice(errors.BadRequest, "the request has to be another one; `field` names what is wrong"),
    _advice(errors.InvalidSessionId, "the header has to be another one"),
    _advice(errors.InvalidPath, "the name has to be another one; `reason` says why"),
    _advice(errors.LimitExceeded, "ask for less, within what `GET /runtimes` says"),
    _advice(errors.Unauthorized, "the token is wrong"),
    _advice(errors.OriginRefused, "the page's origin is not one that is let in"),
    _advice(errors.NotFound, "it is not there; a listing says what is"),
    _advice(
        errors.WorkspaceDirty,
        "this VM is of no use to the session any more; restoring into it is allowed too, unless"
        " `reason` is `other_session` or `state_unreadable`",
    ),
    _advice(
        errors.SessionBusy, "after `Retry-After`, for as long as what holds the session may take"
    ),
    _advice(
        errors.SessionUnbound,
        "this VM knows nothing of the session, so its files are elsewhere: it is as good as new",
        Course.RESTORE,
    ),
    # No VM knows a session that the request does not name, or that its deployment does not have.
    Advice(
        errors.SessionUnbound,
        Course.GIVE_UP,
        "the request has to name its session in `X-Runtime-Session-Id`",
        reason="missing",
    ),
    Advice(
        errors.SessionUnbound,
        Course.GIVE_UP,
        "this deployment has no sessions (`RUNNER_SESSIONS=false`)",
        reason="no_sessions",
    ),
    _advice(
        errors.InputUnavailable,
        "push the input first (`POST /session/inputs`); nothing has changed",
        Course.REPEAT,
    ),
    _advice(
        errors.IncarnationMismatch,
        "the files of the incarnation that was expected are gone with it; this VM is a new life and"
        " may be restored into, `X-Incarnation-Id` names it",
        Course.RESTORE,
    ),
    _advice(errors.PreconditionFailed, "read the file anew; nothing has changed"),
    _advice(errors.BodyTooLarge, "the body has to be smaller"),
    _advice(errors.CheckpointTooLarge, "the workspace has to lose files before it can be saved"),
    _advice(errors.UnsupportedMediaType, "the body has to be sent as what it is"),
    _advice(errors.RangeNotSatisfiable, "`Content-Range` says how long the file is"),
    _advice(
        errors.CheckpointCorrupt,
        "fetch the archive anew from where it is kept and send it once more, then an earlier one."
        " The workspace is empty",
    ),
    _advice(
        errors.CheckpointUnauthentic,
        "the key or the archive is a wrong one. The workspace is empty",
    ),
    _advice(errors.CheckpointUnsafe, "the archive was not made by this runner, or was changed"),
    _advice(errors.CheckpointWrongSession, "the archive of another session was sent"),
    _advice(errors.IdempotencyMismatch, "one key, two bodies: the caller has mixed them up"),
    _advice(errors.Overloaded, "after `Retry-After`, or on another VM"),
    _advice(errors.JailFailed, "three times at most, then restore into a new VM"),
    _advice(errors.BootFailed, "`hook` names the image's hook; a new VM has the same hook"),
    _advice(errors.Internal, "three times at most, then restore into a new VM"),
    _advice(
        errors.NotReady,
        "only `/health` and platform hooks say it: wait as long as a start may take, then another"
        " VM",
        Course.RESTORE,
    ),
    _advice(
        errors.InsufficientStorage,
        "files have to go first; a new VM of the same size is as full after a restore",
    ),
)

_BY_CODE: Mapping[tuple[str, str | None], Advice] = {
    (each.failure.code, each.reason): each for each in ADVICE
}


def course(body: Mapping[str, Any]) -> Course:
    """What to do about an error body; reads `error`, `reason` and the two flags, nothing else."""
    code = body["error"]
    known = _BY_CODE.get((code, body.get("reason"))) or _BY_CODE.get((code, None))
    if known is not None and body["recycle"] is not True:
        return known.course
    return by_flags(retryable=body["retryable"] is True, recycle=body["recycle"] is True)
