"""What an archive means, by Python's own tarfile and a dictionary: no code of the runner's."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path
from typing import TypeAlias

#: Path below the root → kind, mode, body or target. The root is `b""`.
Tree: TypeAlias = dict[bytes, tuple[str, int, bytes]]
_LAST = "runner-sidecar.json"


def applied(tar: bytes, before: Tree) -> Tree:
    """The tree after an archive that was taken, full or a delta."""
    tree = dict(before)
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:", errors="surrogateescape") as reader:
        for member in reader:
            name = os.fsencode(member.name)
            if member.name == _LAST:
                break
            if member.name == "runner-delta":
                for gone in _body(reader, member)[65:].split(b"\0")[:-1]:
                    assert gone in tree, "what is gone was never there"
                    _remove(tree, gone)
                continue
            path = name.removeprefix(b"session").removeprefix(b"/")
            if member.isdir():
                if path in tree and tree[path][0] != "directory":
                    _remove(tree, path)
                tree[path] = ("directory", member.mode, b"")
                continue
            _remove(tree, path)
            if member.issym():
                tree[path] = ("symlink", 0, os.fsencode(member.linkname))
            elif member.islnk():
                tree[path] = tree[os.fsencode(member.linkname).removeprefix(b"session/")]
                assert tree[path][0] == "file"
            else:
                assert member.isreg(), member.type
                tree[path] = ("file", member.mode, _body(reader, member))
    return tree


def found(top: Path) -> Tree:
    """The tree that is there."""
    tree: Tree = {}
    root = os.fsencode(top)
    pending = [b""]
    while pending:
        path = pending.pop()
        at = os.path.join(root, path)
        status = os.lstat(at)
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            tree[path] = ("directory", mode, b"")
            pending += [os.path.join(path, name) for name in os.listdir(at)]
        elif stat.S_ISLNK(status.st_mode):
            tree[path] = ("symlink", 0, os.readlink(at))
        else:
            assert stat.S_ISREG(status.st_mode), oct(status.st_mode)
            tree[path] = ("file", mode, Path(os.fsdecode(at)).read_bytes())
    return tree


def files(tar: bytes) -> dict[str, bytes]:
    """Name → body of the regular files of an archive.

    Up to a header with an owner, a time or a device number that is no number: tarfile gives up
    there, and to a push they mean nothing.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as reader:
            return {each.name: _body(reader, each) for each in reader if each.isreg()}
    except tarfile.ReadError:
        return {}


def _body(reader: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = reader.extractfile(member)
    return file.read() if file is not None else b""


def _remove(tree: Tree, path: bytes) -> None:
    for each in [each for each in tree if each == path or each.startswith(path + b"/")]:
        del tree[each]
