"""What turn 1 leaves at a destination cannot make turn 2's priming touch anything outside."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SESSION
from tests.harness import Daemon
from tests.leftovers import TEST_UID

pytestmark = pytest.mark.asyncio(loop_scope="module")

Seen = tuple[str, int, int, int, bytes]


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that anybody may write to, beside the data root: the target of every trick."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="outside-") as directory:
        path = Path(directory)
        path.chmod(0o777)
        (path / "victim").write_bytes(b"of the host")
        (path / "victim").chmod(0o666)
        yield path


def seen(outside: Path) -> list[Seen]:
    """All there is to be seen of it."""
    found: list[Seen] = []
    for path in [outside, *sorted(outside.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found.append((str(path), status.st_uid, status.st_mode, status.st_ctime_ns, content))
    return found


#: What turn 1 does with {outside}, and the name that turn 2 primes.
TRICKS = {
    "a symlink at the file": ("os.symlink('{outside}/victim', 'in')", "in"),
    "a symlink at the file to nowhere": ("os.symlink('{outside}/new', 'in')", "in"),
    "a symlink at a parent": ("os.symlink('{outside}', 'd')", "d/victim"),
    "a symlink at a parent's parent": ("os.symlink('{outside}', 'd')", "d/e/in"),
    "a symlink deep below": (
        "os.makedirs('d/e'); os.symlink('{outside}', 'd/e/f')",
        "d/e/f/victim",
    ),
    "a symlink upwards": ("os.symlink('..', 'd')", "d/in"),
    "a symlink into the data root": ("os.symlink('../state', 'd')", "d/session.json"),
    "a symlink to itself": ("os.symlink('d', 'd')", "d/in"),
    "a symlink through /proc": ("os.symlink('/proc/self/root{outside}', 'd')", "d/victim"),
    "a directory at the file": ("os.makedirs('in/full'); open('in/full/x', 'w')", "in"),
    "a directory with a symlink in it": (
        "os.mkdir('in'); os.symlink('{outside}', 'in/link')",
        "in",
    ),
    "a directory nobody may enter": ("os.makedirs('in/x'); os.chmod('in', 0)", "in"),
    "a file at a parent": ("open('d', 'w').write('x')", "d/in"),
    "a fifo at the file": ("os.mkfifo('in')", "in"),
    "a fifo at a parent": ("os.mkfifo('d')", "d/in"),
    "a socket at the file": (
        "import socket; socket.socket(socket.AF_UNIX).bind('in')",
        "in",
    ),
    "a file without any mode": ("open('in', 'w').close(); os.chmod('in', 0)", "in"),
    "a hard link to another file": (
        "open('other', 'w').write('mine'); os.link('other', 'in')",
        "in",
    ),
    "a parent nobody may write to": ("os.mkdir('d'); os.chmod('d', 0o500)", "d/in"),
}


@pytest.mark.parametrize("name", TRICKS)
async def test_priming_never_writes_through_what_the_program_left(
    runner: Daemon, outside: Path, name: str
) -> None:
    trick, target = TRICKS[name]
    clean = "rm -rf -- /mnt/data/* 2>/dev/null; chmod -R u+rwx /mnt/data; rm -rf -- /mnt/data/*"
    await runner.execute(clean, language="bash", session=SESSION, name="clean.sh")
    code = f"import os; {trick.format(outside=outside)}"
    turn_1 = await runner.execute(code, session=SESSION, name="turn1.py")
    assert turn_1.json["run"]["code"] == 0, turn_1.json["run"]
    state_before = (runner.data_root / "state/key").read_bytes()
    before = seen(outside)

    # Another one each time: what the program made of an input is kept where the same comes again.
    content = f"the input for {name}"
    turn_2 = await runner.execute(
        f"print(open({target!r}).read())",
        session=SESSION,
        name="turn2.py",
        files=[{"name": target, "content": content}],
    )
    assert turn_2.status == 200, turn_2.body
    assert turn_2.json["run"]["stdout"] == f"{content}\n", turn_2.json["run"]
    assert seen(outside) == before
    assert (runner.data_root / "state/key").read_bytes() == state_before
    placed = (runner.data_root / "workspace" / target).lstat()
    assert stat.S_ISREG(placed.st_mode) and placed.st_uid == TEST_UID and placed.st_nlink == 1
    if "hard link" in name:
        assert (await runner.file(SESSION, "other")).body == b"mine"


async def test_everything_the_daemon_makes_in_the_workspace_is_the_sessions(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch()
    files = [
        {"name": name, "content": "x"} for name in ("a/b/c/d", "a/e", "top", ".hidden/x", "ä/ö")
    ]
    reply = await daemon.execute("pass", session=SESSION, files=files)
    assert reply.status == 200
    archive = (await daemon.checkpoint(SESSION)).body
    await assert_all_of_it_is_the_sessions(daemon, at_least=10)
    assert (await daemon.restore(SESSION, archive)).status == 200
    await assert_all_of_it_is_the_sessions(daemon, at_least=10)
    assert (await daemon.restore(SESSION, archive[:-1])).status == 422
    await assert_all_of_it_is_the_sessions(daemon, at_least=1)


async def assert_all_of_it_is_the_sessions(daemon: Daemon, *, at_least: int) -> None:
    workspace = daemon.data_root / "workspace"
    paths = [workspace, *workspace.rglob("*")]
    assert len(paths) >= at_least
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in paths}
    assert owners == {(TEST_UID, workspace.lstat().st_gid)}
    code = "import os; print([os.stat('.').st_uid, os.getuid()])"
    reply = await daemon.execute(code, session=SESSION)
    assert reply.json["run"]["stdout"] == f"[{TEST_UID}, {TEST_UID}]\n"


async def test_the_data_root_is_closed_to_the_session(runner: Daemon) -> None:
    root = runner.data_root
    for name in ("state", "staging", "runtime"):
        status = (root / name).lstat()
        assert status.st_uid == 0 and stat.S_IMODE(status.st_mode) == 0o700, name
    for name in ("state/key", "state/session.json"):
        assert stat.S_IMODE((root / name).lstat().st_mode) == 0o600, name
    code = f"import os; print(os.path.exists({str(root)!r}))"
    assert (await runner.execute(code, session=SESSION)).json["run"]["stdout"] == "False\n"
    assert os.listdir(root / "staging") == []
