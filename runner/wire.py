"""Request and response types: the wire as an existing control plane of the Piston family has it.

Types only. msgspec checks shapes and ranges while it decodes; what needs knowledge of runtimes,
paths or ceilings is checked in `execution.request`. Unknown fields are ignored. Times in ms,
sizes in bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]
Bytes = Annotated[int, Meta(ge=1, le=1 << 50)]
#: What a request may ask for.
WallTime = Annotated[Milliseconds | None, Meta(description="Wall clock time, in ms.")]
CpuTime = Annotated[Milliseconds | None, Meta(description="CPU time of all processes, in ms.")]
Memory = Annotated[Bytes | None, Meta(description="Memory of all processes together, in bytes.")]
#: A gateway hands out sealed handles in place of ids; they are long.
Label = Annotated[str, Meta(min_length=1, max_length=4096)]


class RequestFile(Struct, frozen=True, kw_only=True):
    """One of `files`: inline (`content`) or by reference (`id` and `storage_session_id`)."""

    name: Annotated[str | None, Meta(description="A path below the session's directory.")] = None
    content: str | None = None
    encoding: Annotated[
        Literal["utf8", "base64", "hex"], Meta(description="How `content` is to be read.")
    ] = "utf8"
    id: Label | None = None
    storage_session_id: Label | None = None
    input_cache_key: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")] | None = None
    entity_id: str | None = None


class ExecuteRequest(Struct, frozen=True, kw_only=True):
    """Body of POST /execute (Piston v2). Of each limit GET /runtimes has the ceiling: more is
    refused, and the ceiling holds where nothing is asked."""

    language: Annotated[
        str,
        Meta(min_length=1, max_length=64, description="A language or an alias of GET /runtimes."),
    ]
    version: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            description="Exact (`3.11.2`), a prefix (`3`, `3.11`, `3.x`) or `*`; the newest fit.",
        ),
    ] = "*"
    files: Annotated[
        list[RequestFile],
        Meta(min_length=1, description="The first inline one is run, or the first."),
    ]
    args: Annotated[list[str], Meta(description="The program's arguments.")] = []
    stdin: Annotated[str, Meta(description="What it reads.")] = ""
    env_vars: Annotated[dict[str, str], Meta(description="Beside its own environment.")] = {}
    run_timeout: WallTime = None
    compile_timeout: WallTime = None
    run_cpu_time: CpuTime = None
    compile_cpu_time: CpuTime = None
    run_memory_limit: Memory = None
    compile_memory_limit: Memory = None
    session_id: Label | None = None
    output_session_id: Annotated[
        Label | None, Meta(description="The storage session of new files.")
    ] = None
    #: Sent along to the file server, or to the gateway before it, as it is.
    egress_grant: Annotated[str, Meta(pattern=r"^[\x21-\x7e]{1,8192}$")] | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """What ended a stage, decided from typed facts. `evidence` holds the facts it rests on."""

    kind: str
    fault: Literal["none", "user", "limit", "infrastructure"]
    retryable: bool
    evidence: dict[str, int | str | bool | None]


class StageLimits(Struct, frozen=True, kw_only=True):
    """What was in force. Times in ms, sizes in bytes; `output` is kept of each stream."""

    timeout: int
    cpu_time: int
    memory_limit: int
    pids: int
    output: int
    open_files: int
    file_size: int


class StreamInfo(Struct, frozen=True, kw_only=True):
    """One output stream: `sha256` is of all `bytes_total`, also of what was not kept."""

    bytes_total: int
    bytes_kept: int
    sha256: str


class Streams(Struct, frozen=True, kw_only=True):
    """Both output streams of a stage."""

    stdout: StreamInfo
    stderr: StreamInfo


class Stage(Struct, frozen=True, kw_only=True):
    """One of `compile` and `run`. `memory` is the peak in bytes; times in ms; all measured.

    `output` is both streams in the order in which they were read.
    """

    stdout: str
    stderr: str
    output: str
    code: int | None
    signal: str | None
    status: Literal["RE", "SG", "TO", "OL", "EL", "XX"] | None
    message: str | None
    memory: int
    cpu_time: int
    wall_time: int
    truncated: bool
    outcome: Outcome
    limits: StageLimits
    streams: Streams


class ObjectReference(Struct, frozen=True, kw_only=True):
    """What names an object on the file server."""

    id: str
    storage_session_id: str


class ResultFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file the client has once it has the result.

    A new one is on the file server under this name, or its bytes are in `content`, in base64 where
    they are not UTF-8. An `inherited` one is the request's own input, unchanged. `modified_from`
    is the input that a new one was made from.
    """

    id: str
    name: str
    storage_session_id: str
    size: int | None = None
    mode: int | None = None
    sha256: str | None = None
    content: str | None = None
    encoding: Literal["utf8", "base64"] | None = None
    inherited: bool = False
    modified_from: ObjectReference | None = None
    entity_id: str | None = None


class SkippedFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file the client does not get with this result, why, and where it can be fetched."""

    name: str
    reason: str
    size: int | None = None
    href: str | None = None


class ExecuteResult(Struct, frozen=True, kw_only=True):
    """Body of a 200 from POST /execute."""

    language: str
    version: str
    session_id: str
    run: Stage
    files: list[ResultFile]
    skipped: list[SkippedFile]
    #: How many were skipped; more than are named in `skipped` where they are very many.
    skipped_total: int
    compile: Stage | msgspec.UnsetType = msgspec.UNSET


class HookReport(Struct, frozen=True, kw_only=True):
    """One boot hook that ran."""

    name: str
    run: Stage


class BootReport(Struct, frozen=True, kw_only=True):
    """One boot; of one that failed the last hook is the one that did."""

    ok: bool
    hooks: list[HookReport]


class Boot(Struct, frozen=True, kw_only=True):
    """Body of POST and GET /session/boot. `last` is None until it has been booted."""

    state: str
    incarnation: str | None
    last: BootReport | None


class TerminalTicket(Struct, frozen=True, kw_only=True):
    """Body of POST /session/terminal/ticket. `terminal` names the one that is open, if one is;
    `attached`: a client is at it."""

    ticket: str
    expires_in: int
    incarnation: str
    terminal: str | None
    attached: bool


class RuntimeInfo(Struct, frozen=True, kw_only=True):
    """A row of GET /runtimes."""

    language: str
    version: str
    aliases: list[str]
    compiled: bool
    limits: dict[str, int]


class FileInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of GET /session/files. `mtime` in ns since the epoch."""

    path: str
    size: int
    mode: int
    mtime: int
    sha256: str | None = None


class FileList(Struct, frozen=True, kw_only=True):
    """Body of GET /session/files; `truncated` when there are more files than are listed."""

    files: list[FileInfo]
    truncated: bool


class InputReference(Struct, frozen=True, kw_only=True):
    """An entry of the cache of pushed inputs."""

    cache_key: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class ProbeRequest(Struct, frozen=True, kw_only=True):
    """Body of POST /session/inputs/probe."""

    refs: Annotated[list[InputReference], Meta(max_length=256)]


class Probed(Struct, frozen=True, kw_only=True):
    """Which of them would have to be pushed."""

    missing: list[InputReference]


class Pushed(Struct, frozen=True, kw_only=True):
    """Body of a 200 from POST /session/inputs: how many objects came."""

    stored: int


class Restored(Struct, frozen=True, kw_only=True):
    """Body of a 200 from POST /session/restore."""

    entries: int
    bytes: int
    archives: int = 1
    status: Literal["restored"] = "restored"
    dir: Literal["session"] = "session"


class Staged(Struct, frozen=True, kw_only=True):
    """Body of a 202 from POST /session/restore: the next archive may come."""

    archives: int
    status: Literal["staged"] = "staged"
