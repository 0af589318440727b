"""What outlives the daemon: the session's record, sealed, in the root-only state directory.

One file, replaced whole by rename, so a reader sees the old or the new one. Everything in `state/`
is written here and nowhere else, but for the room that `workspace.reserve` keeps aside.

    state/session.json   the record and, beside it, an HMAC-SHA-256 over it
    state/boot.json      what the last boot's hooks printed (`execution.boot`); for people, unsealed
    state/key            32 random bytes, made when a session is bound here: seals the record, and
                         the checkpoints of deployments that give no key of their own. Never made
                         at start: clones of a started VM's snapshot would share it
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from runner.workspace.full import is_full
from runner.workspace.priming import Primed
from runner.workspace.reserve import Reserve

KEY_BYTES = 32
_RECORD = "session.json"
_BOOT = "boot.json"
_KEY = "key"
_SEALED_SEPARATOR = b"\n"


class Dirty(StrEnum):
    """Why a workspace must not be used; a stable `reason` of the wire."""

    #: The daemon stopped, or could not wipe, in the middle of a restore.
    RESTORING = "restoring"
    #: It stopped, or could not go on, between two of a request's files.
    PRIMING = "priming"
    MISSING = "workspace_missing"
    #: A process of a jail may still be running in it.
    NOT_EMPTY = "jail_not_empty"
    #: The record on this disk is not to be trusted.
    UNREADABLE = "state_unreadable"
    #: It belongs to another session than the one that asks; never written down.
    OTHER = "other_session"
    #: The VM was to be terminated, and not everything could be wiped.
    ENDED = "terminated"


@dataclass(frozen=True, slots=True)
class Record:
    """What the next daemon on this disk has to know.

    `provisioned` is the readiness marker: the incarnation that was provisioned on this disk.
    `dirty` says why the workspace may be half-changed, or is None.
    """

    session: str
    incarnation: str
    provisioned: str | None = None
    dirty: Dirty | None = None
    terminated: bool = False
    #: Its files came with a checkpoint: not all that is there before a boot is the hooks' own.
    restored: bool = False
    primed: dict[str, Primed] = field(default_factory=dict)
    surfaced: dict[str, str] = field(default_factory=dict)

    def emptied(self) -> Record:
        """The record of the same session when its workspace has been wiped."""
        return replace(self, provisioned=None, dirty=None, restored=False, primed={}, surfaced={})


class RecordUnreadable(Exception):
    """The state directory holds a record that this disk's key did not seal, or no record at all."""


class Store:
    """The state directory. All of it blocks; a write is one small file."""

    def __init__(self, state_fd: int, *, reserve: Reserve | None = None) -> None:
        """Takes over `state_fd`, a descriptor of a directory that only root may enter.

        `reserve`: what a record is written into when the disk is full.
        """
        self._fd = state_fd
        self._reserve = reserve
        for name in (_RECORD, _BOOT, _KEY):
            # Half-written by a daemon that died: a session's, and maybe not this one's.
            self._remove(_scratch(name))
        self._key = self._read_key()

    @property
    def key(self) -> bytes:
        """This disk's own key; there is one as soon as there is a record."""
        assert self._key is not None
        return self._key

    def rekey(self, key: bytes) -> None:
        """Replaces the key: what the last one sealed is not believed any more."""
        self._replace(_KEY, key, durable=True)
        self._key = key

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self._fd)

    def load(self) -> Record | None:
        """The record, or None where there is none. Raises `RecordUnreadable`."""
        sealed = self._read(_RECORD)
        if sealed is None:
            return None
        mac, separator, body = sealed.partition(_SEALED_SEPARATOR)
        if self._key is None or not separator or not hmac.compare_digest(mac, self._mac(body)):
            raise RecordUnreadable("its seal is not right")
        try:
            return msgspec.json.decode(body, type=Record)
        except msgspec.MsgspecError as error:
            raise RecordUnreadable("it is not a record") from error

    def save(self, record: Record, *, durable: bool = False) -> None:
        """Replaces the record. `durable` waits for the disk too: a power cut cannot undo it."""
        if self._key is None:
            # The end of a session that never was: the first record without a binding.
            self.rekey(os.urandom(KEY_BYTES))
        body = msgspec.json.encode(record)
        self._replace(_RECORD, self._mac(body) + _SEALED_SEPARATOR + body, durable=durable)

    def forget(self) -> None:
        """Removes the record, which takes no space."""
        self._remove(_RECORD)

    def save_boot(self, report: bytes) -> None:
        """Replaces what is kept of the last boot."""
        self._replace(_BOOT, report, durable=False)

    def load_boot(self) -> bytes | None:
        """What is kept of the last boot, if anything is."""
        return self._read(_BOOT)

    def forget_boot(self) -> None:
        """Removes it."""
        self._remove(_BOOT)

    def _mac(self, body: bytes) -> bytes:
        return hmac.new(self.key, body, hashlib.sha256).hexdigest().encode("ascii")

    def _read_key(self) -> bytes | None:
        key = self._read(_KEY)
        return key if key is not None and len(key) == KEY_BYTES else None

    def _read(self, name: str) -> bytes | None:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def _replace(self, name: str, content: bytes, *, durable: bool) -> None:
        try:
            self._write_whole(name, content, durable=durable)
        except OSError as error:
            if not is_full(error) or self._reserve is None or not self._reserve.give_up():
                raise
            self._write_whole(name, content, durable=durable)
            self._reserve.fill()

    def _write_whole(self, name: str, content: bytes, *, durable: bool) -> None:
        scratch = _scratch(name)
        self._remove(scratch)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(scratch, flags, 0o600, dir_fd=self._fd), "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.rename(scratch, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        if durable:
            os.fsync(self._fd)


def _scratch(name: str) -> str:
    return f"{name}.new"
