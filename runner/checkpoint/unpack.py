"""Unpacking: a tar stream into a directory of its own, no link followed, nothing kept in memory.

The target lies in a directory that only root may enter, so nobody races with it; names that the
archive itself made (a symlink where a directory is named later) are refused by `Tree` all the same.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from runner.checkpoint import tarformat
from runner.checkpoint.deltahead import DeltaHead
from runner.checkpoint.reader import ArchiveReader, Placed
from runner.checkpoint.tarformat import Member
from runner.errors import (
    CheckpointCorrupt,
    CheckpointUnsafe,
    InsufficientStorage,
    Internal,
    RunnerError,
)
from runner.workspace.dataroot import Owner
from runner.workspace.full import is_full
from runner.workspace.paths import SafePath
from runner.workspace.priming import Primed
from runner.workspace.tree import Tree

#: Ancestors whose descriptors stay open. Deeper trees reopen them on the way up.
OPEN_ANCESTORS = 32
#: Reason of an archive that is right by itself and does not follow the one before.
CHAIN = "chain"
_READ_ONLY_MODE = 0o444
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def unpack(reader: ArchiveReader, target: Tree, owner: Owner) -> None:
    """Unpacks a full archive into the empty `target`.

    Raises what the archive deserves; then `target` holds a part of it and has to be removed.
    """
    _run(reader, _Unpacker(target, owner))


def apply(reader: ArchiveReader, head: DeltaHead, target: Tree, owner: Owner) -> None:
    """Makes of `target`, which holds the state that a delta builds on, the state that it is of.

    `head` was read from `reader`. Raises as `unpack` does.
    """
    try:
        for parts in head.gone:
            target.stat(parts)
            target.remove(parts)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise refusal(error) from None
        raise CheckpointCorrupt("what is gone was never there", reason=CHAIN) from None
    _run(reader, _Applier(target, owner))


def _run(reader: ArchiveReader, unpacker: _Unpacker) -> None:
    try:
        for placed in reader.members():
            unpacker.take(placed, reader)
        unpacker.finish()
    except OSError as error:
        raise refusal(error) from None
    finally:
        unpacker.close()


def protect_inputs(target: Tree, primed: Mapping[str, Primed]) -> None:
    """Gives read-only inputs back to root with mode 0444.

    Whatever else stands at such a path is the session's, and the next priming deals with it.
    """
    for path, each in primed.items():
        if not each.read_only:
            continue
        parts = SafePath.of_parts(os.fsencode(path).split(b"/")).parts
        try:
            if stat.S_ISREG(target.stat(parts).st_mode):
                target.chown(parts, 0, 0)
                target.chmod(parts, _READ_ONLY_MODE)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise refusal(error) from None


def refusal(error: OSError) -> RunnerError:
    """What a failed system call means to the caller."""
    if is_full(error):
        return InsufficientStorage("the checkpoint does not fit on this disk")
    return Internal("the checkpoint could not be unpacked", reason="unpack")


@dataclass(slots=True)
class _Directory:
    """A directory that members still go into. Its own mode and time come last."""

    leaf: bytes
    mode: int
    mtime_ns: int
    tree: Tree | None


class _Unpacker:
    """Puts members where the reader placed them; a stack of open directories."""

    def __init__(self, target: Tree, owner: Owner) -> None:
        self._target = target
        self._owner = owner
        self._stack: list[_Directory] = []

    def take(self, placed: Placed, reader: ArchiveReader) -> None:
        """One member, with its body."""
        member, leaf, depth = placed
        while len(self._stack) > depth:
            self._leave()
        if member.kind == tarformat.FILE:
            self._file(member, leaf, reader)
        elif member.kind == tarformat.DIRECTORY:
            self._directory(member, leaf)
        elif member.kind == tarformat.SYMLINK:
            here = self._top()
            self._clear(here, leaf)
            here.symlink(member.link, (leaf,), uid=self._owner.uid, gid=self._owner.gid)
            here.set_mtime((leaf,), member.mtime_ns)
        else:
            self._clear(self._top(), leaf)
            self._hard_link(member)

    def finish(self) -> None:
        """Leaves every directory that is still open."""
        while self._stack:
            self._leave()

    def close(self) -> None:
        """Gives the descriptors back, whatever state the directories are in."""
        for directory in self._stack:
            if directory.tree is not None:
                directory.tree.close()
        self._stack.clear()

    def _file(self, member: Member, leaf: bytes, reader: ArchiveReader) -> None:
        here = self._top()
        self._clear(here, leaf)
        fd = here.create((leaf,))
        try:
            for piece in reader.body():
                written = os.write(fd, piece)
                while written < len(piece):
                    written += os.write(fd, piece[written:])
            os.fchown(fd, self._owner.uid, self._owner.gid)
            os.fchmod(fd, member.mode)
            os.utime(fd, ns=(member.mtime_ns, member.mtime_ns))
        finally:
            os.close(fd)

    def _directory(self, member: Member, leaf: bytes) -> None:
        if not self._stack:
            tree = self._target.subtree(())
        else:
            tree = self._open_directory(self._top(), leaf)
        self._stack.append(_Directory(leaf, member.mode, member.mtime_ns, tree))
        if len(self._stack) > OPEN_ANCESTORS:
            far = self._stack[-OPEN_ANCESTORS]
            if far.tree is not None:
                far.tree.close()
                far.tree = None

    def _open_directory(self, here: Tree, leaf: bytes) -> Tree:
        """The directory that members will go into."""
        return here.make_dir((leaf,), uid=self._owner.uid, gid=self._owner.gid, mode=0o700)

    def _clear(self, here: Tree, leaf: bytes) -> None:
        """Makes room for a member; there is nothing in its way."""

    def _hard_link(self, member: Member) -> None:
        """Only files of this archive, or of its chain, are in the target: what is there came
        earlier."""
        target, name = _parts_below_root(member.link), _parts_below_root(member.name)
        try:
            is_file = stat.S_ISREG(self._target.stat(target).st_mode)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            is_file = False
        if not is_file:
            raise CheckpointUnsafe("a hard link names no earlier file", reason="link")
        self._target.link(target, name)

    def _leave(self) -> None:
        """Mode and time of a directory, now that nothing changes in it any more."""
        tree = self._top()
        directory = self._stack.pop()
        try:
            tree.give_root(uid=self._owner.uid, gid=self._owner.gid, mode=directory.mode)
            os.utime(tree.fileno(), ns=(directory.mtime_ns, directory.mtime_ns))
        finally:
            tree.close()

    def _top(self) -> Tree:
        top = self._stack[-1].tree
        return top if top is not None else self._reopened()

    def _reopened(self) -> Tree:
        """Opens the lowest `OPEN_ANCESTORS` levels again: the next ones up will be asked for."""
        first = max(0, len(self._stack) - OPEN_ANCESTORS)
        above = self._target.subtree(tuple(each.leaf for each in self._stack[1 : first + 1]))
        self._stack[first].tree = above
        for directory in self._stack[first + 1 :]:
            above = directory.tree = above.subtree((directory.leaf,))
        return above


class _Applier(_Unpacker):
    """The same over a tree that is there. A member takes the place of what stands there; only a
    directory that stays one keeps what is in it."""

    def _open_directory(self, here: Tree, leaf: bytes) -> Tree:
        try:
            return here.subtree((leaf,))
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            here.remove((leaf,))
        return super()._open_directory(here, leaf)

    def _clear(self, here: Tree, leaf: bytes) -> None:
        here.remove((leaf,))


def _parts_below_root(name: bytes) -> tuple[bytes, ...]:
    return tuple(name.split(b"/")[1:])
