"""A group that could not be removed when its jail died is removed when it no longer is busy."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from jail import cgroup, cgroupfs
from jail.cgroup import Cgroup, Cgroups


@pytest.fixture
def cgroups(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cgroups]:
    monkeypatch.setattr(cgroup, "REMOVE_TIMEOUT_S", 0.05)
    opened = Cgroups.open(f"busy {tmp_path}")
    yield opened
    opened.close()
    assert not any(os.path.exists(path) for path in opened.parents.directories)


def _put(pid: int, group: Cgroup) -> None:
    for descriptor in group.open_procs():
        os.write(descriptor, str(pid).encode())
        os.close(descriptor)


def test_it_is_removed_by_the_next_one(cgroups: Cgroups) -> None:
    busy = cgroups.create(None)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        _put(sleeper.pid, busy)
        assert busy.remove() is False
        still = cgroups.create(None)
        assert still.remove() is True and os.path.exists(busy.directories[0])
        sleeper.kill()
    cgroups.create(None).remove()
    assert not any(os.path.exists(path) for path in busy.directories)
    assert cgroups.busy == []


def test_it_is_removed_at_the_latest_when_the_daemon_stops(
    cgroups: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = cgroups.create(None)
    with subprocess.Popen(["sleep", "0.5"]) as sleeper:
        _put(sleeper.pid, busy)
        assert busy.remove() is False
        monkeypatch.setattr(cgroup, "REMOVE_TIMEOUT_S", 10.0)
        reaping = threading.Thread(target=sleeper.wait)
        reaping.start()
        # It waits for whoever is on the way out, as a killed process on a busy machine is.
        cgroups.close()
        assert not any(os.path.exists(path) for path in busy.directories)
        assert not any(os.path.exists(path) for path in cgroups.parents.directories)
        reaping.join()


def test_what_does_not_end_does_not_keep_the_daemon_from_stopping(cgroups: Cgroups) -> None:
    busy = cgroups.create(None)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        _put(sleeper.pid, busy)
        assert busy.remove() is False
        cgroups.close()
        assert sleeper.poll() is None
        assert any(os.path.exists(path) for path in busy.directories)
        sleeper.kill()
    for directory in busy.directories:
        assert cgroupfs.remove_group(directory, time.monotonic() + 5)


def test_groups_that_are_made_at_once_are_each_their_makers(cgroups: Cgroups) -> None:
    """Whoever cannot be removed is tried again by every maker, and that lets the others go on."""
    busy = cgroups.create(None)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        _put(sleeper.pid, busy)
        assert busy.remove() is False
        with ThreadPoolExecutor(8) as threads:
            made = list(threads.map(lambda _: cgroups.create(None), range(400)))
        assert len({group.name for group in made}) == 400
        assert all(os.path.isdir(path) for group in made for path in group.directories)
        assert all(group.remove() for group in made)
        sleeper.kill()


def test_who_is_in_one_is_killed_and_it_is_not_clear_before_that_is_proven(
    cgroups: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = cgroups.create(None)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        _put(sleeper.pid, busy)
        inner = [os.path.join(directory, "held") for directory in busy.directories]
        for path in inner:
            os.mkdir(path)
        assert busy.remove() is False
        assert not cgroups.is_clear()
        assert sleeper.wait(timeout=10) == -9
        assert not cgroups.is_clear()
        for path in inner:
            os.rmdir(path)
    monkeypatch.setattr(cgroup, "REMOVE_TIMEOUT_S", 5.0)
    assert cgroups.is_clear() and cgroups.busy == []
