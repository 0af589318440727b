"""The wrappers: right numbers, errno as OSError, per thread."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from runner.workspace import syscalls


def test_openat2_stays_beneath_and_closes_on_exec(room) -> None:
    fd = syscalls.openat2(room.top.fileno(), b"workspace", os.O_RDONLY, syscalls.RESOLVE_BENEATH)
    assert not os.get_inheritable(fd)
    os.close(fd)
    for path in (b"../..", b"/etc"):
        with pytest.raises(OSError) as caught:
            syscalls.openat2(room.top.fileno(), path, os.O_RDONLY, syscalls.RESOLVE_BENEATH)
        assert caught.value.errno == errno.EXDEV


def test_renameat2_exchanges_and_does_not_replace(room) -> None:
    (room.data / "a").write_bytes(b"a")
    (room.data / "b").write_bytes(b"b")
    fd = room.workspace.fileno()
    syscalls.renameat2(fd, b"a", fd, b"b", syscalls.RENAME_EXCHANGE)
    assert (room.data / "a").read_bytes() == b"b"
    with pytest.raises(FileExistsError):
        syscalls.renameat2(fd, b"a", fd, b"b", syscalls.RENAME_NOREPLACE)


def test_errno_of_one_thread_is_not_that_of_another(room) -> None:
    fd = room.top.fileno()
    cases = [
        (b"none", errno.ENOENT),
        (b"/etc", errno.EXDEV),
        (b"workspace/x/y", errno.ENOENT),
    ] * 500

    def fails_with(path: bytes) -> int | None:
        try:
            syscalls.openat2(fd, path, os.O_RDONLY, syscalls.RESOLVE_BENEATH)
        except OSError as error:
            return error.errno
        return None

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(fails_with, [path for path, _ in cases]))
    assert found == [code for _, code in cases]


@pytest.mark.parametrize(("code", "there"), [(errno.ENOSYS, False), (errno.EPERM, False)])
def test_a_kernel_or_filter_without_openat2_is_noticed(monkeypatch, code: int, there: bool) -> None:
    def refuse(*_: object) -> int:
        raise OSError(code, "refused")

    monkeypatch.setattr(syscalls, "openat2", refuse)
    assert syscalls.has_openat2.__wrapped__() is there
