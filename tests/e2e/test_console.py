"""How the console page is served: off, or with nothing let in but its own files."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from image import console
from tests.harness import Daemon

Start = Callable[..., Awaitable[Daemon]]


async def test_it_is_off_unless_it_is_switched_on(start: Start) -> None:
    daemon = await start()
    for path in ("/console", "/api/v2/console", "/console/app.js"):
        assert (await daemon.get(path)).status == 404


async def test_page_and_files_are_served_to_anyone_and_nothing_else_is(start: Start) -> None:
    daemon = await start(RUNNER_CONSOLE="true", RUNNER_TOKEN="secret")
    for prefix in ("", "/api/v2"):
        page = await daemon.get(f"{prefix}/console")
        assert page.status == 200
        named = re.findall(rb'(?:src|href)="(console/[^"]+)"', page.body)
        assert len(named) >= 4
        for name in named:
            assert (await daemon.get(f"{prefix}/{name.decode()}")).status == 200
    for name in (
        "index.html",
        "__init__.py",
        "..%2fhealth",
        "%2e%2e%2fapp.py",
        "vendor/PINNED",
        "x",
    ):
        assert (await daemon.get(f"/console/{name}")).status in (401, 404), name
    assert (await daemon.get("/session/files", session="s")).status == 401


async def test_the_policy_lets_in_no_script_and_no_style_of_anybody_else(start: Start) -> None:
    daemon = await start(RUNNER_CONSOLE="true")
    policies = []
    for _ in range(2):
        page = await daemon.get("/console")
        policies.append(page.headers["Content-Security-Policy"])
        nonce = re.search(r"'nonce-([^']+)'", policies[-1])
        assert nonce is not None
        assert f'nonce="{nonce[1]}"'.encode() in page.body
        assert "unsafe" not in policies[-1]
        # No inline script, style or handler: what the policy would refuse is not there.
        assert not re.search(rb"<script>|<style|\son\w+=|\sstyle=", page.body)
    assert policies[0] != policies[1]


async def test_a_file_that_the_browser_has_is_not_sent_again(start: Start) -> None:
    daemon = await start(RUNNER_CONSOLE="true")
    first = await daemon.get("/console/vendor/xterm.mjs")
    assert first.headers["Content-Type"].startswith("text/javascript")
    again = await daemon.get(
        "/console/vendor/xterm.mjs", headers={"If-None-Match": first.headers["ETag"]}
    )
    assert (again.status, again.body) == (304, b"")


def test_nothing_that_the_page_uses_comes_from_elsewhere() -> None:
    """The namespace of SVG is a name, and addresses in what is vendored are comments."""
    files = console.load()
    assert {"index.html", "app.js", "vendor/xterm.mjs", "vendor/addon-fit.mjs"} <= files.keys()
    for name, asset in files.items():
        if not name.startswith("vendor/"):
            found = re.findall(rb"https?://[^\s\"'`]+", asset.content)
            assert set(found) <= {b"http://www.w3.org/2000/svg"}, name
