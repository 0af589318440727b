"""A directory that cannot be listed is not an empty one."""

from __future__ import annotations

from runner.workspace.collecting import collect
from runner.workspace.fingerprint import HashCache
from runner.workspace.outputs import Reason
from tests.mounts import tmpfs


def test_a_directory_that_cannot_be_listed_is_skipped_and_not_called_empty(room) -> None:
    (room.data / "b-empty").mkdir()
    with tmpfs(room.data / "a-mount") as where:
        (where / "file").write_bytes(b"x")
        found = collect(room.workspace, {}, {}, cache=HashCache())
    assert [str(path) for path in found.empty_dirs] == ["b-empty"]
    assert [(each.path, each.reason) for each in found.skipped] == [("a-mount", Reason.UNREADABLE)]
