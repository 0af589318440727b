"""The sealed metadata that travels as a checkpoint's last member: made, sealed, verified. Pure.

`mac` is HMAC-SHA-256 (RFC 2104) over the canonical JSON of everything else: keys sorted, no
blanks, characters above ASCII escaped.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from runner.checkpoint.limits import Limits
from runner.errors import (
    CheckpointTooLarge,
    CheckpointUnauthentic,
    CheckpointWrongSession,
    Internal,
    InvalidPath,
)
from runner.workspace.paths import SafePath
from runner.workspace.priming import Primed

MARKER = "runner.sidecar.v1"
MEMBER_NAME = b"runner-sidecar.json"
KEY_BYTES = 32
#: Reason of an archive that was sealed with another key, or forged: the two look the same.
WRONG_KEY = "mac"

_KEY_LABEL = b"sandbox-runner checkpoint seal v1\x00"
#: No relative path begins with a slash, so a key that does is the base64url of raw bytes.
_RAW = "/"

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Crc32 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}$")]


class _WirePrimed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An input that was put into the workspace. `sha256` is of its original bytes."""

    sha256: Digest
    read_only: bool
    id: str | None
    storage_session_id: str | msgspec.UnsetType = msgspec.UNSET


class ArchiveFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of every tar byte and every member before the sidecar."""

    sha256: Digest
    entries: Count
    bytes: Count


class DeltaFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a delta builds on, what the tree is after it, and how many names are gone."""

    base: Digest
    tree: Digest
    removed: Count


_NO_ARCHIVE = ArchiveFacts(sha256="", entries=0, bytes=0)


class _Wire(msgspec.Struct, forbid_unknown_fields=True):
    """The sidecar's JSON. Paths are in their wire form."""

    marker: str
    session: str
    incarnation: str
    created_at: str
    archive: ArchiveFacts
    primed: dict[str, _WirePrimed]
    surfaced: dict[str, Digest]
    mac: Digest | msgspec.UnsetType = msgspec.UNSET
    omitted: Count | msgspec.UnsetType = msgspec.UNSET
    compressed_crc32: Crc32 | msgspec.UnsetType = msgspec.UNSET
    state: Digest | msgspec.UnsetType = msgspec.UNSET
    delta: DeltaFacts | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFacts:
    """What the session knows and a checkpoint carries. Paths are `str(SafePath)`.

    `created_at` is RFC 3339 in UTC. It is passed in so that the same workspace gives the same
    bytes whenever the caller says it is the same moment.
    """

    session: str
    incarnation: str
    created_at: str
    primed: Mapping[str, Primed]
    surfaced: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar(SidecarFacts):
    """A sidecar whose seal was verified. `omitted` counts sockets, fifos and devices left out.

    `compressed_crc32` is the sum of the gzip bytes before the sidecar. None: it was not made by
    this runner, which always says it. `state` names the state that was saved; None: no delta can
    build on it. `delta` is there for deltas only.
    """

    archive: ArchiveFacts
    omitted: int
    compressed_crc32: int | None
    state: str | None
    delta: DeltaFacts | None


def derive_key(master: bytes, session: str) -> bytes:
    """One session's key from a deployment's (HMAC-SHA-256 as the extract step of RFC 5869)."""
    return hmac.digest(master, _KEY_LABEL + session.encode(), hashlib.sha256)


def fingerprint(facts: SidecarFacts) -> bytes:
    """A digest of what a sidecar would say of the workspace, but for the moment it is made."""
    unsealed = msgspec.to_builtins(_wire(facts, facts.surfaced, _NO_ARCHIVE))
    del unsealed["created_at"]
    return hashlib.sha256(_canonical(unsealed)).digest()


def seal(
    facts: SidecarFacts,
    archive: ArchiveFacts,
    *,
    omitted: int,
    compressed_crc32: int,
    key: bytes,
    limits: Limits,
    state: str | None = None,
    delta: DeltaFacts | None = None,
) -> bytes:
    """The sidecar's bytes. Leaves `surfaced` out if they would be over the cap, `primed` never."""
    for surfaced in (facts.surfaced, {}):
        wire = _wire(facts, surfaced, archive)
        wire.omitted = omitted or msgspec.UNSET
        wire.compressed_crc32 = f"{compressed_crc32:08x}"
        wire.state = state or msgspec.UNSET
        wire.delta = delta or msgspec.UNSET
        wire.mac = _mac(wire, key)
        sealed = _canonical(msgspec.to_builtins(wire))
        if len(sealed) <= limits.sidecar_bytes:
            return sealed
    raise CheckpointTooLarge("the record of the inputs alone is over its cap", reason="sidecar")


def open_sealed(raw: bytes, archive: ArchiveFacts, *, key: bytes, session: str) -> Sidecar:
    """Checks marker, MAC, digest and counts, session: in that order, and then the paths."""
    try:
        wire = msgspec.json.decode(raw, type=_Wire)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise CheckpointUnauthentic("the sidecar is not one of ours", reason="sidecar") from None
    if wire.marker != MARKER:
        raise CheckpointUnauthentic("the sidecar has another marker", reason="marker")
    sealed_by = wire.mac if isinstance(wire.mac, str) else ""
    if not hmac.compare_digest(sealed_by, _mac(wire, key)):
        raise CheckpointUnauthentic("the seal was not made with this key", reason=WRONG_KEY)
    if wire.archive != archive:
        raise CheckpointUnauthentic("the sidecar belongs to another archive", reason="digest")
    if wire.session != session:
        raise CheckpointWrongSession()
    return Sidecar(
        session=wire.session,
        incarnation=wire.incarnation,
        created_at=wire.created_at,
        archive=wire.archive,
        primed={_from_wire(path): _primed_from_wire(it) for path, it in wire.primed.items()},
        surfaced={_from_wire(path): digest for path, digest in wire.surfaced.items()},
        omitted=wire.omitted if isinstance(wire.omitted, int) else 0,
        compressed_crc32=int(wire.compressed_crc32, 16) if wire.compressed_crc32 else None,
        state=wire.state if isinstance(wire.state, str) else None,
        delta=wire.delta if isinstance(wire.delta, DeltaFacts) else None,
    )


def _wire(facts: SidecarFacts, surfaced: Mapping[str, str], archive: ArchiveFacts) -> _Wire:
    return _Wire(
        marker=MARKER,
        session=facts.session,
        incarnation=facts.incarnation,
        created_at=facts.created_at,
        archive=archive,
        primed={_to_wire(path): _primed_to_wire(primed) for path, primed in facts.primed.items()},
        surfaced={_to_wire(path): digest for path, digest in surfaced.items()},
    )


def _mac(wire: _Wire, key: bytes) -> str:
    if len(key) != KEY_BYTES:
        raise Internal("a sidecar key has a wrong length")
    unsealed: dict[str, Any] = msgspec.to_builtins(wire)
    unsealed.pop("mac", None)
    return hmac.new(key, _canonical(unsealed), hashlib.sha256).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def _primed_to_wire(primed: Primed) -> _WirePrimed:
    return _WirePrimed(
        sha256=primed.sha256,
        read_only=primed.read_only,
        id=primed.input_id,
        storage_session_id=primed.storage_session_id or msgspec.UNSET,
    )


def _primed_from_wire(wire: _WirePrimed) -> Primed:
    storage = wire.storage_session_id
    return Primed(
        sha256=wire.sha256,
        read_only=wire.read_only,
        input_id=wire.id,
        storage_session_id=storage if isinstance(storage, str) else None,
    )


def _to_wire(path: str) -> str:
    """JSON holds Unicode only: a path with other bytes travels as base64url behind a slash."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raw = path.encode("utf-8", "surrogateescape")
        return _RAW + base64.urlsafe_b64encode(raw).decode("ascii")
    return path


def _from_wire(key: str) -> str:
    raw = key.encode("utf-8")
    if key.startswith(_RAW):
        try:
            raw = base64.b64decode(key[1:], altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise CheckpointUnauthentic("a path is not in its form", reason="sidecar") from None
    try:
        return str(SafePath.of_parts(raw.split(b"/")))
    except InvalidPath:
        raise CheckpointUnauthentic("a path is not in its form", reason="sidecar") from None
