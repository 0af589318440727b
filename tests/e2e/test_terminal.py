"""The terminal as somebody at a keyboard meets it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.conftest import SESSION
from tests.harness import Daemon
from tests.leftovers import TEST_UID, settled
from tests.terminals import Shell, attached, connect, cut, refused, shells

pytestmark = pytest.mark.asyncio(loop_scope="module")

Launch = Callable[..., object]


async def test_a_login_shell_runs_as_the_session_user_in_the_workspace(runner: Daemon) -> None:
    await runner.execute("open('made.txt', 'w').write('x')", session=SESSION)
    async with attached(runner, SESSION, cols=101, rows=31) as shell:
        assert await shell.run(
            "id -u; pwd; ls made*; stty size; shopt -q login_shell && echo login"
        ) == (f"{TEST_UID}\n/mnt/data\nmade.txt\n31 101\nlogin\n")
        assert shell.ready["incarnation"] == (await runner.get("/health")).incarnation
        await shell.type("exit\r")
        assert await shell.closed() == 1000


async def test_the_metrics_say_whether_there_is_one(runner: Daemon) -> None:
    async def told() -> str:
        return (await runner.get("/metrics")).body.decode()

    async with attached(runner, SESSION) as shell:
        assert "runner_terminals 1.0" in await told()
        await shell.type("exit\r")
        await shell.closed()
    assert "runner_terminals 0.0" in await told()


async def test_the_window_follows_the_client(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        assert await shell.run("stty size") == "24 80\n"
        await shell.ws.send_str('{"type": "resize", "cols": 132, "rows": 43}')
        assert await shell.run("stty size") == "43 132\n"


async def test_control_c_interrupts_and_jobs_are_controlled(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        await shell.run("trap - INT")
        await shell.type("sleep 60\r")
        await asyncio.sleep(0.3)
        await shell.type("\x03")
        await shell.type("echo code=$?.\r")
        await shell.until("code=130.")
        await shell.type("sleep 60\r")
        await asyncio.sleep(0.3)
        await shell.type("\x1a")
        await shell.until("Stopped")
        assert "sleep 60 &" in await shell.run("bg; kill %1; wait")


@pytest.mark.parametrize(
    ("typed", "code", "signal", "kind"),
    [("exit 7", 7, None, "exited"), ("kill -9 $$", 137, "SIGKILL", "signaled")],
)
async def test_how_the_shell_ended_is_said(
    runner: Daemon, typed: str, code: int, signal: str | None, kind: str
) -> None:
    async with attached(runner, SESSION) as shell:
        await shell.type(f"{typed}\r")
        assert await shell.closed() == 1000
        frame = shell.frame("exit")
        assert (frame["code"], frame["signal"]) == (code, signal)
        assert frame["outcome"]["kind"] == kind


async def test_the_last_words_come_before_the_exit(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        await shell.type("seq 1 20000; exit\r")
        assert await shell.closed() == 1000
        assert "\r\n20000\r\n" in shell.screen
        assert shell.frames[-1]["type"] == "exit"


async def test_a_frame_that_is_none_is_answered_and_changes_nothing(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        for text in ("{", '{"type":"resize","cols":0,"rows":1}', '{"type":"reboot"}', "[]"):
            await shell.ws.send_str(text)
        assert await shell.run("echo alive") == "alive\n"
        errors = [frame["error"] for frame in shell.frames if frame["type"] == "error"]
        assert errors == ["invalid_request"] * 4
        await shell.hang_up()
        assert shell.ws.close_code == 1000


# Coming back


async def test_who_comes_back_misses_nothing_and_sees_nothing_twice(runner: Daemon) -> None:
    shell = await connect(runner, SESSION)
    await shell.run("stty -echo")
    name, seen, start = shell.id, b"", shell.offset
    await shell.type("for i in $(seq 1 60); do seq $i 997 9000; sleep 0.01; done; echo the-end\r")
    while b"the-end" not in seen:
        before = len(shell.seen)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                while await shell.take():
                    pass
        seen += shell.seen[before:]
        cut(shell)
        shell = await connect(runner, SESSION, terminal=name, offset=start + len(seen), takeover=1)
        assert shell.ready["resumed"]
        assert shell.ready["offset"] == start + len(seen)
    lines = [int(line) for line in seen.split(b"the-end")[0].split() if line.isdigit()]
    assert lines == [number for i in range(1, 61) for number in range(i, 9001, 997)]
    await shell.hang_up()


async def test_without_an_offset_all_that_is_kept_is_said_again(runner: Daemon) -> None:
    shell = await connect(runner, SESSION)
    await shell.run('echo be""fore')
    cut(shell)
    async with attached(runner, SESSION, terminal=shell.id, takeover=1) as again:
        assert again.ready["offset"] == 0
        await again.until("before\r\n")
        assert await again.run("echo after") == "after\n"


async def test_a_shell_that_ended_meanwhile_still_says_how(runner: Daemon) -> None:
    shell = await connect(runner, SESSION)
    await shell.type("stty -echo; sleep 0.5; echo last words; exit 4\r")
    await asyncio.sleep(0.2)
    cut(shell)
    await asyncio.sleep(1)
    async with attached(runner, SESSION, terminal=shell.id, offset=shell.offset) as again:
        assert await again.closed() == 1000
        assert "last words" in again.screen
        assert again.frame("exit")["code"] == 4


async def test_a_terminal_that_is_no_more_is_not_found(runner: Daemon) -> None:
    status, body = await refused(runner, SESSION, terminal="0123456789abcdef", offset=3)
    assert (status, body["error"], body["reason"]) == (404, "not_found", "terminal_gone")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"offset": 3}, "offset"),
        ({"terminal": "t", "offset": -1}, "offset"),
        ({"cols": 0}, "cols"),
        ({"takeover": "yes"}, "takeover"),
    ],
)
async def test_a_malformed_attach_is_refused_by_name(
    runner: Daemon, query: dict[str, object], field: str
) -> None:
    status, body = await refused(runner, SESSION, **query)
    assert (status, body["error"], body["field"]) == (400, "invalid_request", field)


async def test_a_plain_request_is_told_what_the_route_takes(runner: Daemon) -> None:
    reply = await runner.get("/api/v2/session/terminal", session=SESSION)
    assert (reply.status, reply.json["field"]) == (400, "Upgrade")


# One holder


async def test_a_second_client_is_refused_unless_it_takes_over(runner: Daemon) -> None:
    first = await connect(runner, SESSION)
    await first.run("mine=yes")
    status, body = await refused(runner, SESSION)
    assert (status, body["error"], body["reason"]) == (409, "session_busy", "terminal_held")
    async with attached(runner, SESSION, takeover=1) as second:
        assert await first.closed() == 4409
        assert first.frame("error")["reason"] == "taken_over"
        assert second.id == first.id
        assert await second.run("echo $mine") == "yes\n"


# Beside the session's other business


async def test_executions_go_on_beside_it(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        await shell.run("echo by-hand > hand.txt")
        done = await runner.execute(
            "print(open('hand.txt').read()); open('run.txt', 'w').write('by-run')", session=SESSION
        )
        assert done.json["run"]["stdout"] == "by-hand\n\n"
        assert await shell.run("cat run.txt; echo") == "by-run\n"


async def test_what_was_typed_is_no_output_of_the_next_execution(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        await shell.run("python3 -c 1; echo typed")
    assert not [path for path in await runner.paths(SESSION) if "history" in path]


async def test_the_daemon_is_neither_seen_nor_reached(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        assert await shell.run("ls -d /proc/[0-9]* | wc -l; cat /proc/1/comm") == "4\ninit\n"
        assert "No such process" in await shell.run(f"kill -9 {runner.pid}")
        assert await shell.run("kill -9 1; kill -9 -1 2>/dev/null; echo alive") == "alive\n"
        port = runner.url.rpartition(":")[2]
        assert "refused" in await shell.run(f"exec 3<>/dev/tcp/127.0.0.1/{port}")
    assert (await runner.get("/health")).status == 200


async def test_health_answers_while_a_terminal_burns(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        await shell.type("for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; yes\r")
        await asyncio.sleep(0.3)
        flooding = asyncio.create_task(_swallow(shell))
        for _ in range(20):
            async with asyncio.timeout(5):
                assert (await runner.get("/health?level=alive")).status == 200
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
    assert await settled(shells, []) == []


async def _swallow(shell: Shell) -> None:
    while await shell.take():
        shell.seen = b""


async def test_a_client_that_stops_reading_stops_the_shell_and_costs_little(
    runner: Daemon,
) -> None:
    async with attached(runner, SESSION) as shell:
        await shell.type("stty -echo; echo ready\r")
        await shell.until("ready")
        before = _peak_kib(runner)
        # Half a GiB, if nothing holds it back.
        await shell.type("head -c 536870912 /dev/zero | tr '\\0' x > /dev/tty; echo done\r")
        await asyncio.sleep(2)
        assert _peak_kib(runner) - before < 4096
        await shell.type("\x03")
        while not shell.seen.endswith(b"$ "):
            await asyncio.wait_for(shell.take(), 10)
            shell.seen = shell.seen[-64:]
        assert shell.offset < 64 << 20
        assert await shell.run("echo still here") == "still here\n"


async def test_a_page_says_itself_how_far_it_got(runner: Daemon) -> None:
    """A browser answers pings before the page has dealt with the bytes."""
    async with attached(runner, SESSION, ack=1) as shell:
        await shell.type("yes\r")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while await shell.take():
                    pass
        # All it was sent, its pongs notwithstanding: what may be ahead of the page.
        assert shell.offset == 192 << 10
        await shell.ws.send_json({"type": "ack", "offset": shell.offset})
        async with asyncio.timeout(5):
            while shell.offset < 384 << 10:
                await shell.take()


async def test_a_paste_of_half_a_mebibyte_arrives_whole(runner: Daemon) -> None:
    line = "x" * 99 + "\n"
    async with attached(runner, SESSION) as shell:
        await shell.run(
            "stty -echo; cat > pasted; stty echo &",
        ) if False else None
        await shell.type("stty -echo; echo go; cat > pasted; echo got-$(wc -c < pasted)-\r")
        await shell.until("go\r\n")
        await shell.type(line * 5000)
        await shell.type("\x04")
        await shell.until("got-500000-")


async def test_a_paste_that_is_printed_again_does_not_stop_halfway(runner: Daemon) -> None:
    """More comes back than either side keeps: whoever reads only when written to would wait.

    Printed by a program: the kernel's own echo is dropped when nobody reads it (n_tty.c).
    """
    async with attached(runner, SESSION) as shell:
        await shell.type("stty -echo; echo go; cat\r")
        await shell.until("go\r\n")
        pasting = asyncio.create_task(shell.type(("y" * 99 + "\n") * 9000))
        async with asyncio.timeout(20):
            while shell.seen.count(b"y\r\n") < 9000:
                await shell.take()
        await pasting


def _peak_kib(runner: Daemon) -> int:
    status = Path(f"/proc/{runner.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


async def test_input_that_nobody_takes_is_bounded(runner: Daemon) -> None:
    async with attached(runner, SESSION) as shell:
        await shell.type("stty raw -echo; echo go; sleep 60\r")
        await shell.until("go")
        with pytest.raises((ConnectionError, aiohttp.ClientError)):
            for _ in range(64):
                await shell.ws.send_bytes(b"x" * (256 << 10))
                await asyncio.sleep(0)
            assert await shell.closed() == 1009
            raise ConnectionError
    async with attached(runner, SESSION, terminal=shell.id, takeover=1) as again:
        assert again.ready["resumed"]


async def test_two_hundred_that_are_opened_and_dropped_leave_nothing(launch: Launch) -> None:
    daemon: Daemon = await launch("drops", RUNNER_TERMINAL_GRACE="1ms")  # type: ignore[misc]
    await daemon.execute("pass", session=SESSION)
    before = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    names = set()
    turn = 0
    while len(names) < 200:
        turn += 1
        shell = await connect(daemon, SESSION, takeover=1)
        names.add(shell.id)
        if turn % 2:
            cut(shell)
        else:
            await shell.ws.close()
        await asyncio.sleep(0.01)
    assert await settled(shells, []) == []
    assert await settled(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")), before) <= before
