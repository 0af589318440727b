"""A directory that cannot be listed is not an empty one."""

from __future__ import annotations

import subprocess

from runner.workspace.collecting import collect
from runner.workspace.fingerprint import HashCache
from runner.workspace.outputs import Reason


def test_a_directory_that_cannot_be_listed_is_skipped_and_not_called_empty(room) -> None:
    for name in ("a-mount", "b-empty"):
        (room.data / name).mkdir()
    where = room.data / "a-mount"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", where], check=True)
    try:
        (where / "file").write_bytes(b"x")
        found = collect(room.workspace, {}, {}, cache=HashCache())
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)
    assert [str(path) for path in found.empty_dirs] == ["b-empty"]
    assert [(each.path, each.reason) for each in found.skipped] == [("a-mount", Reason.UNREADABLE)]
