"""The caps of a checkpoint and the sizes of its parts. Numbers only."""

from __future__ import annotations

from dataclasses import dataclass

#: One tar block (POSIX.1-2001 pax, "ustar Interchange Format").
BLOCK = 512

#: Bytes handed from one thread to the next at a time. A quarter of a mebibyte stays in the
#: second-level cache of the core that reads, hashes and compresses it.
CHUNK = 256 << 10

#: Linux takes no longer symlink target (PATH_MAX less the NUL).
SYMLINK_BYTES_MAX = 4095

#: Linux NAME_MAX.
LEAF_BYTES_MAX = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one checkpoint may hold. `expanded_bytes` counts the tar bytes before the sidecar."""

    compressed_bytes: int = 512 << 20
    expanded_bytes: int = 512 << 20
    entries: int = 1_000_000
    #: Of a member's whole name. Four times PATH_MAX: code can build deeper trees than one call
    #: of the kernel can name, and they are its user's files too.
    name_bytes: int = 16 << 10
    sidecar_bytes: int = 16 << 20
    #: Of the names that a delta says are gone. Where more are, a full archive is sent.
    gone_bytes: int = 2 << 20

    @classmethod
    def of(cls, max_bytes: int) -> Limits:
        """`RUNNER_CHECKPOINT_MAX_BYTES`: one number for compressed and expanded."""
        return cls(compressed_bytes=max_bytes, expanded_bytes=max_bytes)

    @property
    def pax_bytes(self) -> int:
        """Of one member's pax records: two names and the numbers beside them."""
        return 2 * self.name_bytes + 2 * BLOCK
