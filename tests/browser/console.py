"""The console page as its user sees it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from playwright.async_api import BrowserContext, Page, expect

#: Kept for the docs when the tests are asked to (`SCREENSHOTS=docs/images`).
PATIENCE_S = 15.0


class Console:
    """One tab."""

    def __init__(self, page: Page) -> None:
        self.page = page
        #: Errors and policy violations of the page, with those of lost connections left out.
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note)

    def _note(self, message: object) -> None:
        text = message.text  # type: ignore[attr-defined]
        expected = ("Failed to load resource", "WebSocket connection", "ERR_CONNECTION")
        if message.type == "error" and not any(each in text for each in expected):  # type: ignore[attr-defined]
            self.complaints.append(text)

    @classmethod
    async def open(cls, context: BrowserContext, url: str) -> Console:
        console = cls(await context.new_page())
        await console.page.goto(f"{url}/console")
        return console

    async def connected(self) -> None:
        await expect(self.page.locator("#terminal-status")).to_have_attribute("data-state", "on")

    async def text(self) -> str:
        """All of the terminal's text."""
        return await self.page.evaluate("sandboxConsole.terminal.text")

    async def type(self, text: str) -> None:
        await self.page.locator("#terminal textarea").focus()
        await self.page.keyboard.type(text)
        await self.page.keyboard.press("Enter")

    async def shows(self, wanted: str) -> str:
        """The terminal's text, once it contains `wanted`."""
        async with asyncio.timeout(PATIENCE_S):
            while wanted not in (text := await self.text()):
                await asyncio.sleep(0.05)
        return text

    async def size(self) -> tuple[int, int]:
        size = await self.page.evaluate("sandboxConsole.terminal.size")
        return size["cols"], size["rows"]

    async def shot(self, name: str, directory: Path) -> None:
        await self.page.screenshot(path=directory / f"{name}.png")
