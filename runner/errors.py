"""Every failure a caller can be told about, in one tree.

    RunnerError
    ├── BadRequest                 400 invalid_request
    │   ├── InvalidSessionId       400 invalid_session_id
    │   ├── InvalidPath            400 invalid_path
    │   └── LimitExceeded          400 limit_exceeded
    ├── Unauthorized               401 unauthorized
    ├── OriginRefused              403 origin_refused
    ├── NotFound                   404 not_found
    ├── WorkspaceDirty             409 session_workspace_dirty   recycle
    ├── SessionBusy                409 session_busy              retryable
    ├── SessionUnbound             409 session_unbound
    ├── InputUnavailable           409 input_unavailable
    ├── IncarnationMismatch        412 incarnation_mismatch
    ├── PreconditionFailed         412 precondition_failed
    ├── TooLarge
    │   ├── BodyTooLarge           413 body_too_large
    │   └── CheckpointTooLarge     413 checkpoint_too_large
    ├── UnsupportedMediaType       415 unsupported_media_type
    ├── RangeNotSatisfiable        416 range_not_satisfiable
    ├── CheckpointRefused
    │   ├── CheckpointCorrupt      422 checkpoint_corrupt
    │   ├── CheckpointUnauthentic  422 checkpoint_unauthentic
    │   ├── CheckpointUnsafe       422 checkpoint_unsafe
    │   └── CheckpointWrongSession 422 checkpoint_wrong_session
    ├── IdempotencyMismatch        422 idempotency_mismatch
    ├── Overloaded                 429 overloaded                retryable
    ├── JailFailed                 500 jail_failed               retryable
    ├── BootFailed                 500 boot_failed               retryable
    ├── Internal                   500 internal                  retryable
    ├── NotReady                   503 not_ready (only /health and platform hooks)
    └── InsufficientStorage        507 insufficient_storage

A class's docstring *is* its message. What an instance adds is a short detail written by us: never
a host path, an errno text, a traceback, or the text of another exception.
"""

from __future__ import annotations

from typing import Any, ClassVar


class RunnerError(Exception):
    """The request failed."""

    code: ClassVar[str]
    status: ClassVar[int]
    #: Repeating the same request on the same VM can succeed.
    retryable: bool = False
    #: This VM's workspace is not to be trusted; take another VM and restore into it. True of any
    #: failure that leaves the session dirty.
    recycle: bool = False

    def __init__(
        self,
        detail: str = "",
        *,
        field: str | None = None,
        reason: str | None = None,
        retry_after: int | None = None,
        **extra: Any,
    ) -> None:
        """`field` names the offending input, `reason` a stable sub-code, `retry_after` seconds.

        `extra` joins the JSON body as it is.
        """
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.reason = reason
        self.retry_after = retry_after
        self.extra = extra

    @property
    def message(self) -> str:
        """The class's sentence, and the detail behind it."""
        sentence = (type(self).__doc__ or "").strip().splitlines()[0].rstrip(".")
        return f"{sentence}: {self.detail}" if self.detail else sentence

    def body(self) -> dict[str, Any]:
        """The JSON body: the one error shape of the wire."""
        body: dict[str, Any] = {
            "error": self.code,
            "message": self.message,
            "retryable": self.retryable,
            "recycle": self.recycle,
        }
        if self.field is not None:
            body["field"] = self.field
        if self.reason is not None:
            body["reason"] = self.reason
        return body | self.extra


class BadRequest(RunnerError):
    """The request is not valid."""

    code = "invalid_request"
    status = 400


class InvalidSessionId(BadRequest):
    """X-Runtime-Session-Id must be sent once and match [A-Za-z0-9._:-]{1,128}."""

    code = "invalid_session_id"


class InvalidPath(BadRequest):
    """A file name cannot be taken."""

    code = "invalid_path"


class LimitExceeded(BadRequest):
    """A limit is above what this runner allows."""

    code = "limit_exceeded"


class Unauthorized(RunnerError):
    """A valid bearer token is needed."""

    code = "unauthorized"
    status = 401


class OriginRefused(RunnerError):
    """A page of another origin asks."""

    code = "origin_refused"
    status = 403


class NotFound(RunnerError):
    """There is nothing here."""

    code = "not_found"
    status = 404


class WorkspaceDirty(RunnerError):
    """The workspace of this VM is not to be used."""

    code = "session_workspace_dirty"
    status = 409
    recycle = True


class SessionBusy(RunnerError):
    """Another operation holds the session."""

    code = "session_busy"
    status = 409
    retryable = True


class SessionUnbound(RunnerError):
    """This VM holds no workspace of this session."""

    code = "session_unbound"
    status = 409


class InputUnavailable(RunnerError):
    """An input was never delivered."""

    code = "input_unavailable"
    status = 409


class IncarnationMismatch(RunnerError):
    """The workspace is of another incarnation than the one expected."""

    code = "incarnation_mismatch"
    status = 412


class PreconditionFailed(RunnerError):
    """The file is not what If-Match or If-None-Match says."""

    code = "precondition_failed"
    status = 412


class TooLarge(RunnerError):
    """Something is larger than this runner takes."""

    status = 413


class BodyTooLarge(TooLarge):
    """The request body is larger than this runner takes."""

    code = "body_too_large"


class CheckpointTooLarge(TooLarge):
    """The checkpoint is larger than RUNNER_CHECKPOINT_MAX_BYTES."""

    code = "checkpoint_too_large"


class UnsupportedMediaType(RunnerError):
    """The content type is not one this route takes."""

    code = "unsupported_media_type"
    status = 415


class RangeNotSatisfiable(RunnerError):
    """The requested range lies outside the file."""

    code = "range_not_satisfiable"
    status = 416


class CheckpointRefused(RunnerError):
    """The archive was refused and the workspace was wiped."""

    status = 422


class CheckpointCorrupt(CheckpointRefused):
    """The archive is damaged."""

    code = "checkpoint_corrupt"


class CheckpointUnauthentic(CheckpointRefused):
    """The archive does not carry a valid seal."""

    code = "checkpoint_unauthentic"


class CheckpointUnsafe(CheckpointRefused):
    """The archive holds something that no checkpoint of ours holds."""

    code = "checkpoint_unsafe"


class CheckpointWrongSession(CheckpointRefused):
    """The archive belongs to another session."""

    code = "checkpoint_wrong_session"


class IdempotencyMismatch(RunnerError):
    """The Idempotency-Key was used for another request."""

    code = "idempotency_mismatch"
    status = 422


class Overloaded(RunnerError):
    """This runner has as much to do as it can."""

    code = "overloaded"
    status = 429
    retryable = True


class JailFailed(RunnerError):
    """The jail could not be set up."""

    code = "jail_failed"
    status = 500
    retryable = True


class BootFailed(RunnerError):
    """The session could not be provisioned; the next use tries again."""

    code = "boot_failed"
    status = 500
    retryable = True


class Internal(RunnerError):
    """The runner failed."""

    code = "internal"
    status = 500
    retryable = True


class NotReady(RunnerError):
    """The runner is not ready."""

    code = "not_ready"
    status = 503
    retryable = True


class InsufficientStorage(RunnerError):
    """There is not enough free space."""

    code = "insufficient_storage"
    status = 507
