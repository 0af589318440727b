"""A group that could not be removed when its jail died is removed when it no longer is busy."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from jail import cgroup
from jail.cgroup import Cgroups


@pytest.fixture
def cgroups(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cgroups]:
    monkeypatch.setattr(cgroup, "REMOVE_TIMEOUT_S", 0.05)
    opened = Cgroups.open(f"busy {tmp_path}")
    yield opened
    opened.close()
    assert not any(os.path.exists(path) for path in opened.parents.directories)


def test_it_is_removed_by_the_next_one(cgroups: Cgroups) -> None:
    busy = cgroups.create(None)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        for descriptor in busy.open_procs():
            os.write(descriptor, str(sleeper.pid).encode())
            os.close(descriptor)
        assert busy.remove() is False
        still = cgroups.create(None)
        assert still.remove() is True and os.path.exists(busy.directories[0])
        sleeper.kill()
    cgroups.create(None).remove()
    assert not any(os.path.exists(path) for path in busy.directories)
    assert cgroups.busy == []


def test_it_is_removed_at_the_latest_when_the_daemon_stops(cgroups: Cgroups) -> None:
    busy = cgroups.create(None)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        for descriptor in busy.open_procs():
            os.write(descriptor, str(sleeper.pid).encode())
            os.close(descriptor)
        assert busy.remove() is False
        sleeper.kill()
