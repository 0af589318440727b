"""From the wire's request to a plan: what can be refused is refused here, before anything is bound,
locked or written. Pure.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from image.runtimes import Runtime, select
from jail.profile import Limits
from runner.errors import BadRequest, LimitExceeded
from runner.execution.limits import ceilings, chosen
from runner.settings import Settings
from runner.wire import ExecuteRequest, RequestFile
from runner.workspace.paths import SafePath, refuse_conflicts

FILES_MAX = 256
#: Linux MAX_ARG_STRLEN: one argument or environment string, its NUL included.
STRING_BYTES_MAX = 128 * 1024 - 1
#: Arguments and environment strings: nsjail and the kernel read each of them.
STRINGS_MAX = 16_384
#: All arguments and environment strings together; Linux allows a quarter of RLIMIT_STACK (2 MiB at
#: the usual 8 MiB), of which the runtime's own share and the pointers are kept free.
STRINGS_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class InlineFile:
    """A file whose bytes came with the request."""

    path: SafePath
    content: bytes


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """A file that the client says was delivered before, or can be fetched."""

    path: SafePath
    id: str
    storage_session_id: str
    cache_key: str | None
    entity_id: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A request that may run. `compile_limits` is None for a runtime that does not compile."""

    runtime: Runtime
    entry: SafePath
    inline: tuple[InlineFile, ...]
    referenced: tuple[ReferencedFile, ...]
    args: tuple[str, ...]
    stdin: bytes
    env: dict[str, str]
    run_limits: Limits
    compile_limits: Limits | None
    output_session_id: str
    egress_grant: str | None = field(default=None, repr=False)

    @property
    def wall_ms(self) -> int:
        """What all its stages together may take."""
        compile_ms = self.compile_limits.wall_ms if self.compile_limits else 0
        return compile_ms + self.run_limits.wall_ms

    @property
    def sources(self) -> tuple[SafePath, ...]:
        """What the compiler is given, in the order of the request; the entry if nothing else."""
        suffix = (self.runtime.source_suffix or "").encode()
        paths = [f.path for f in self.inline] + [f.path for f in self.referenced]
        named = tuple(path for path in paths if suffix and path.name.endswith(suffix))
        return named or (self.entry,)


def new_id() -> str:
    """21 URL-safe characters: the form of ids in this family of runners."""
    return secrets.token_urlsafe(16)[:21]


def plan(
    request: ExecuteRequest, *, runtimes: Sequence[Runtime], settings: Settings, cpus: int
) -> Plan:
    """Raises a `BadRequest` that names the field, or returns what is to run."""
    runtime = select(runtimes, request.language, request.version)
    if runtime is None:
        raise BadRequest(
            f"no runtime {request.language[:64]!a} {request.version[:64]!a} is here",
            field="language",
            reason="unknown_runtime",
        )
    most = ceilings(runtime, settings, cpus=cpus)
    inline, referenced = _files(request.files, suffix=runtime.source_suffix or ".code")
    _check_strings(request)
    return Plan(
        runtime=runtime,
        entry=(inline or referenced)[0].path,
        inline=inline,
        referenced=referenced,
        args=tuple(request.args),
        stdin=_stdin(request.stdin),
        env=dict(request.env_vars),
        run_limits=chosen(request, "run", most.run),
        compile_limits=None if most.compile is None else chosen(request, "compile", most.compile),
        output_session_id=request.output_session_id or request.session_id or new_id(),
        egress_grant=request.egress_grant,
    )


def _files(
    files: Sequence[RequestFile], *, suffix: str
) -> tuple[tuple[InlineFile, ...], tuple[ReferencedFile, ...]]:
    if len(files) > FILES_MAX:
        raise LimitExceeded(f"at most {FILES_MAX} files", field="files", reason="too_many_files")
    inline: list[InlineFile] = []
    referenced: list[ReferencedFile] = []
    named: list[tuple[str, SafePath]] = []
    for index, file in enumerate(files):
        field = f"files[{index}]"
        # Piston names it after its place, with `.code`; a compiler goes by the suffix.
        name = file.name if file.name is not None else f"file{index}{suffix}"
        path = SafePath.parse(name, field=f"{field}.name")
        named.append((f"{field}.name", path))
        if file.content is not None:
            if file.id is not None or file.storage_session_id is not None:
                raise BadRequest("either content or id, not both", field=field, reason="both")
            inline.append(InlineFile(path, _decode(file.content, file.encoding, field)))
        elif file.id is None or file.storage_session_id is None:
            raise BadRequest(
                "either content, or id and storage_session_id", field=field, reason="neither"
            )
        elif {file.id, file.storage_session_id} & {".", ".."}:
            # In a URL they would name another resource than an object.
            raise BadRequest("it names no object", field=field, reason="object_name")
        else:
            referenced.append(
                ReferencedFile(
                    path, file.id, file.storage_session_id, file.input_cache_key, file.entity_id
                )
            )
    refuse_conflicts(named)
    return tuple(inline), tuple(referenced)


def _decode(content: str, encoding: str, field: str) -> bytes:
    try:
        if encoding == "base64":
            return base64.b64decode(content, validate=True)
        if encoding == "hex":
            return binascii.unhexlify(content)
        return content.encode("utf-8")
    except (binascii.Error, ValueError):
        raise BadRequest(
            f"it is not valid {encoding}", field=f"{field}.content", reason="encoding"
        ) from None


def _stdin(text: str) -> bytes:
    """Piston ends the last line, so that a program that reads lines gets all of them."""
    if text and not text.endswith("\n"):
        text += "\n"
    return text.encode("utf-8", "surrogatepass")


def _check_strings(request: ExecuteRequest) -> None:
    many = "args" if len(request.args) > STRINGS_MAX else "env_vars"
    if len(request.args) + len(request.env_vars) > STRINGS_MAX:
        raise LimitExceeded(f"at most {STRINGS_MAX} strings", field=many, reason="too_many_strings")
    strings = [*request.args, *(f"{k}={v}" for k, v in request.env_vars.items())]
    for name in request.env_vars:
        if not name or "=" in name:
            raise BadRequest(
                "a name must not be empty or contain =", field="env_vars", reason="env_name"
            )
    total = 0
    for index, string in enumerate(strings):
        field = "args" if index < len(request.args) else "env_vars"
        try:
            size = len(string.encode("utf-8"))
        except UnicodeEncodeError:
            raise BadRequest("it is not valid Unicode", field=field, reason="encoding") from None
        if "\x00" in string:
            raise BadRequest("it contains NUL", field=field, reason="nul")
        total += size
        if size > STRING_BYTES_MAX or total > STRINGS_BYTES_MAX:
            raise LimitExceeded(
                f"one string holds at most {STRING_BYTES_MAX} bytes, all together at most "
                f"{STRINGS_BYTES_MAX}",
                field=field,
                reason="strings_too_large",
            )
