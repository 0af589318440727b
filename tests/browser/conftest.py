"""A real Chromium over a real daemon. Run by `make test-browser`."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, async_playwright

from tests.browser.console import Console
from tests.harness import Daemon
from tests.leftovers import TEST_UID

CHROMIUM = "/usr/bin/chromium"
#: The page asks nothing of the world; neither does the browser.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOOK = "#!/bin/sh\nprintf provisioned > /mnt/data/.marker\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context(
        viewport={"width": 1360, "height": 820}, accept_downloads=True, color_scheme="dark"
    )
    context.set_default_timeout(10_000)
    yield context
    await context.close()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A daemon that keeps its address over a restart, and a boot hook that leaves a marker."""
    hooks = tmp_path / "boot.d"
    hooks.mkdir()
    (hooks / "10-marker").write_text(HOOK)
    (hooks / "10-marker").chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "RUNNER_CONSOLE": "true",
        "RUNNER_PORT": str(port),
        "RUNNER_BOOT_HOOKS": str(hooks),
        "RUNNER_SESSION_UID": str(TEST_UID),
    }


@pytest_asyncio.fixture(loop_scope="module")
async def daemon(fast_dir: Path, environ: dict[str, str]) -> AsyncIterator[Daemon]:
    daemon = Daemon(fast_dir / "data", environ)
    await daemon.start()
    yield daemon
    await daemon.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def console(context: BrowserContext, daemon: Daemon) -> AsyncIterator[Console]:
    """The page, connected. What the browser complains of fails the test."""
    console = await Console.open(context, daemon.url)
    await console.page.get_by_role("button", name="Connect").click()
    await console.connected()
    yield console
    assert console.complaints == []
