"""Session mode and stateless mode: who sees which files, and whose VM this is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runner.recovery import Course, course
from tests.conftest import SESSION
from tests.harness import Daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIST = "import os; print(sorted(os.listdir('.')))"


async def health(daemon: Daemon) -> dict[str, Any]:
    return (await daemon.get("/health")).json["session"]


async def test_a_file_is_there_in_the_next_turn(runner: Daemon) -> None:
    await runner.execute("open('kept', 'w').write('turn 1')", session=SESSION)
    reply = await runner.execute("print(open('kept').read())", session=SESSION)
    assert reply.json["run"]["stdout"] == "turn 1\n"


async def test_without_the_header_nothing_of_the_session_is_seen(runner: Daemon) -> None:
    await runner.execute("open('secret', 'w').write('x')", session=SESSION)
    reply = await runner.execute(LIST)
    assert reply.json["run"]["stdout"] == "['main']\n"
    everywhere = "grep -rls secret-of-the-session /mnt /tmp /dev/shm /var/lib /home; ls /mnt"
    await runner.execute("open('s2', 'w').write('secret-of-the-session')", session=SESSION)
    reply = await runner.execute(everywhere, language="bash", name="look")
    assert reply.json["run"]["stdout"].split() == ["/mnt/data/look", "data"]


async def test_the_session_sees_nothing_of_a_stateless_run(runner: Daemon) -> None:
    await runner.execute("open('stateless', 'w').write('x'); open('/tmp/t', 'w')")
    code = "import os; print(os.path.exists('stateless'), os.path.exists('/tmp/t'))"
    reply = await runner.execute(code, session=SESSION)
    assert reply.json["run"]["stdout"] == "False False\n"


async def test_two_stateless_runs_see_nothing_of_each_other(runner: Daemon) -> None:
    await runner.execute("open('first', 'w').write('x')")
    reply = await runner.execute(LIST)
    assert reply.json["run"]["stdout"] == "['main']\n"


@pytest.mark.parametrize(
    "operation",
    ["POST /execute", "GET /session/checkpoint", "GET /session/files", "POST /session/restore"],
)
async def test_a_vm_serves_one_session(runner: Daemon, operation: str) -> None:
    before = await health(runner)
    method, path = operation.split()
    sent: dict[str, Any] = {}
    if path == "/execute":
        sent["json"] = {"language": "python", "files": [{"name": "x", "content": ""}]}
    elif method == "POST":
        sent = {"data": b"x", "headers": {"Content-Type": "application/x-gtar"}}
    reply = await runner.request(method, path, session="another", **sent)
    error = reply.json
    assert (reply.status, error["error"]) == (409, "session_workspace_dirty")
    assert (error["reason"], error["recycle"], error["retryable"]) == ("other_session", True, False)
    assert reply.incarnation == before["incarnation"]
    assert await health(runner) == before


async def test_every_response_names_the_incarnation_once_there_is_one(
    launch: Callable[..., Any],
) -> None:
    fresh: Daemon = await launch()
    assert (await fresh.get("/runtimes")).incarnation is None
    assert (await fresh.execute("print(1)")).incarnation is None
    bound = await fresh.execute("print(1)", session=SESSION)
    assert bound.incarnation is not None
    for path in ("/health", "/health?level=alive", "/runtimes", "/metrics", "/nothing", "/execute"):
        assert (await fresh.get(path)).incarnation == bound.incarnation, path
    for reply in (
        await fresh.execute("print(1)"),
        await fresh.execute("print(1)", session="another"),
        await fresh.execute("print(1)", session="bad id"),
        await fresh.checkpoint(SESSION),
        await fresh.file(SESSION, "main"),
        await fresh.restore(SESSION, b"not an archive"),
    ):
        assert reply.incarnation == bound.incarnation


async def test_who_shuts_itself_out_of_its_workspace_is_let_in_again(runner: Daemon) -> None:
    await runner.execute("echo 1 > kept", language="bash", session=SESSION)
    for mode in ("0", "0600", "0500", "0077"):
        await runner.execute(f"chmod {mode} /mnt/data", language="bash", session=SESSION)
        reply = await runner.execute("cat kept; : > new", language="bash", session=SESSION)
        run = reply.json["run"]
        assert (run["code"], run["stdout"]) == (0, "1\n"), (mode, run)


async def test_two_bindings_never_share_an_incarnation(launch: Callable[..., Any]) -> None:
    names = set()
    for root in ("first", "second"):
        names.add((await (await launch(root)).execute("pass", session=SESSION)).incarnation)
    assert len(names) == 2 and None not in names


async def test_another_incarnation_than_expected_changes_nothing(runner: Daemon) -> None:
    before = await runner.get("/session/files", session=SESSION)
    wrong = {"X-Expected-Incarnation": "inc_of_another_disk"}
    for reply in (
        await runner.execute("open('made', 'w')", session=SESSION, headers=wrong, name="new"),
        await runner.checkpoint(SESSION, headers=wrong),
        await runner.restore(SESSION, b"x", headers=wrong),
        await runner.get("/session/files", session=SESSION, headers=wrong),
    ):
        assert (reply.status, reply.json["error"]) == (412, "incarnation_mismatch")
    after = await runner.get("/session/files", session=SESSION)
    assert after.body == before.body
    right = {"X-Expected-Incarnation": after.incarnation}
    assert (await runner.execute("pass", session=SESSION, headers=right)).status == 200


async def test_an_unbound_vm_is_not_bound_by_a_wrong_expectation(
    launch: Callable[..., Any],
) -> None:
    fresh: Daemon = await launch()
    wrong = {"X-Expected-Incarnation": "inc_of_another_disk"}
    for reply in (
        await fresh.execute("pass", session=SESSION, headers=wrong),
        await fresh.restore(SESSION, b"x", headers=wrong),
    ):
        assert (reply.status, reply.json["error"]) == (412, "incarnation_mismatch")
    assert (await health(fresh))["state"] == "unbound"


async def test_looking_never_binds(launch: Callable[..., Any]) -> None:
    fresh: Daemon = await launch()
    for path in ("/session/checkpoint", "/session/files", "/session/files/x"):
        reply = await fresh.get(path, session=SESSION)
        assert (reply.status, reply.json["error"]) == (409, "session_unbound"), path
    assert (await health(fresh))["state"] == "unbound"
    assert (await fresh.execute("print(1)", session="another")).status == 200


async def test_the_compatible_prefix_reaches_the_same_session(runner: Daemon) -> None:
    body = {"language": "python", "version": "3.x", "files": [{"content": "open('v2', 'w')"}]}
    reply = await runner.request("POST", "/api/v2/execute", session=SESSION, json=body)
    assert reply.status == 200, reply.body
    assert "v2" in await runner.paths(SESSION)
    assert (await runner.get("/api/v2/session/files/v2", session=SESSION)).status == 200


async def nameless(daemon: Daemon) -> list[dict[str, Any]]:
    """What routes of a session answer to a request that says nothing of one."""
    paths = ["/session/checkpoint", "/session/files", "/session/files/x", "/session/boot"]
    return [(await daemon.get(path)).json for path in paths]


async def test_no_vm_would_know_a_session_that_is_not_named(runner: Daemon) -> None:
    for said in await nameless(runner):
        assert (said["error"], said["reason"]) == ("session_unbound", "missing")
        assert course(said) is Course.GIVE_UP


async def test_no_vm_would_know_one_of_a_deployment_without_sessions(
    launch: Callable[..., Any],
) -> None:
    daemon: Daemon = await launch(RUNNER_SESSIONS="false")
    for said in await nameless(daemon):
        assert (said["error"], said["reason"]) == ("session_unbound", "no_sessions")
        assert course(said) is Course.GIVE_UP
    known = await daemon.checkpoint(SESSION)
    assert course(known.json) is Course.GIVE_UP
