"""What a jail is to be: a frozen description that can be printed, compared and tested without root.

`config` turns it into nsjail's configuration, `process` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

#: nsjail and init stand in the group too, and take 3 MiB of it before the command runs: with less
#: it would be a matter of chance which of them the limit ends.
MEMORY_MIN = 8 << 20


class Network(StrEnum):
    """`NONE` is a network namespace with only loopback up."""

    NONE = "none"
    EGRESS = "egress"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one jail may use. Times in ms, sizes in bytes."""

    wall_ms: int
    cpu_ms: int
    memory_bytes: int
    pids: int
    #: Kept of each of stdout and stderr. Past it stdout ends the jail and stderr is dropped.
    output_bytes: int
    open_files: int = 1024
    file_size_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory or file of the host seen in the jail; always nosuid and nodev."""

    source: str
    target: str
    writable: bool = False
    executable: bool = True
    is_dir: bool = True


@dataclass(frozen=True, slots=True)
class WindowSize:
    """Of a terminal, in characters."""

    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Profile:
    """One jail. The command is exec'd by our init, never through a shell."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    uid: int
    gid: int
    limits: Limits
    binds: tuple[Bind, ...] = ()
    network: Network = Network.NONE
    hostname: str = "sandbox"
    #: Size of the private /tmp and of /dev/shm, in bytes; charged to the memory limit.
    tmp_bytes: int = 256 << 20
    stdin: bytes = field(default=b"", repr=False)
    #: The command leads a session on a terminal of the jail's own, in place of the three streams.
    terminal: WindowSize | None = None
