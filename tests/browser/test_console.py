"""The console page, used."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, expect

from tests.browser.console import Console
from tests.harness import Daemon
from tests.leftovers import TEST_UID, processes_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: `make screenshots` keeps them for the docs.
SHOTS = Path(os.environ["SCREENSHOTS"]) if "SCREENSHOTS" in os.environ else None


async def shot(console: Console, name: str) -> None:
    if SHOTS is not None:
        await console.page.mouse.move(0, 0)
        await asyncio.sleep(1)
        await console.shot(name, SHOTS)


async def test_no_sandbox_is_taken_by_opening_the_page(
    context: BrowserContext, daemon: Daemon
) -> None:
    console = await Console.open(context, daemon.url)
    await expect(console.page.get_by_role("button", name="Connect")).to_be_visible()
    assert (await daemon.get("/health")).json["session"]["state"] == "unbound"
    assert console.complaints == []


async def test_type_resize_and_reload(console: Console) -> None:
    page = console.page
    await console.type("echo $((6*7)); cat .marker; echo")
    await console.shows("42\nprovisioned")
    columns, rows = await console.size()
    await console.type("stty size")
    await console.shows(f"\n{rows} {columns}\n")
    await page.set_viewport_size({"width": 1000, "height": 640})
    await asyncio.sleep(0.5)
    columns_now, rows_now = await console.size()
    assert columns_now < columns
    await console.type("clear; stty size")
    await console.shows(f"{rows_now} {columns_now}\n")

    # The same shell, with what it had said, after a reload.
    await console.type("here=still; echo before the reload")
    await console.shows("\nbefore the reload")
    await page.reload()
    await console.connected()
    await console.shows("\nbefore the reload")
    await console.type("echo $here-here")
    await console.shows("\nstill-here")


async def test_control_c_exit_and_a_new_shell(console: Console) -> None:
    page = console.page
    await console.type("sleep 60")
    await asyncio.sleep(0.3)
    await page.keyboard.press("Control+c")
    await console.type("echo code $?")
    await console.shows("\ncode 130")
    await console.type("exit 3")
    await console.shows("The shell ended with 3. Press Enter for a new one.")
    await expect(page.locator("#terminal-status")).to_have_text("ended")
    await page.keyboard.press("Enter")
    await console.connected()
    await console.type("old=1; echo ready again")
    await console.shows("\nready again")
    await page.get_by_role("button", name="New shell").click()
    await asyncio.sleep(0.5)
    await console.connected()
    await console.type("echo [$old]")
    await console.shows("\n[]")


async def test_the_published_failure_in_a_tab_that_was_left_open(
    console: Console, daemon: Daemon
) -> None:
    """The disk is destroyed, the tab reconnects by itself: the shell it gets is provisioned."""
    page = console.page
    await console.type("cat .marker; echo; touch mine")
    await console.shows("\nprovisioned")
    before = (await daemon.get("/health")).incarnation
    await daemon.kill()
    shutil.rmtree(daemon.data_root)
    await expect(page.locator("#terminal-status")).to_have_attribute("data-state", "wait")
    await daemon.start()
    await console.connected()
    await expect(page.get_by_role("alert")).to_contain_text("This is a new sandbox")
    await console.type("clear; cat .marker; echo; ls")
    assert "mine" not in await console.shows("provisioned\n")
    after = (await daemon.get("/health")).incarnation
    assert after not in (None, before)
    await expect(page.locator("#fact-incarnation")).to_have_attribute("title", f"{after}: copy it")
    await shot(console, "console-replaced")


async def test_a_daemon_that_is_started_again_on_its_disk_is_come_back_to(
    console: Console, daemon: Daemon
) -> None:
    await console.type("echo kept > kept; echo written")
    await console.shows("\nwritten")
    await daemon.kill()
    await daemon.start()
    await console.connected()
    await console.shows("The shell that was here has ended.")
    await console.type("cat kept")
    await console.shows("\nkept")
    await expect(console.page.get_by_role("alert")).to_be_hidden()


async def test_run_streams_and_stops(console: Console) -> None:
    page = console.page
    output, said = page.locator("#run-output"), page.locator("#run-status")
    code = page.get_by_label("Code", exact=True)
    await code.fill("import time\nprint('first', flush=True)\ntime.sleep(1.5)\nprint(input())\n")
    await page.get_by_label("Standard input").fill("from stdin\n")
    await code.press("Control+Enter")
    # Live: the first line is there while it still runs.
    await expect(output).to_have_text("first\n", use_inner_text=True, timeout=1400)
    await expect(said).to_have_text("running")
    await expect(output).to_contain_text("from stdin")
    await expect(said).to_contain_text("exit 0 in")

    await code.fill("import sys\nsys.stderr.write('no\\n')\nsys.exit(3)")
    await page.get_by_role("button", name="Run", exact=True).last.click()
    await expect(output.locator(".stderr")).to_have_text("no\n")
    await expect(said).to_contain_text("exit 3 in")

    await code.fill("while True: pass")
    await code.press("Control+Enter")
    await expect(said).to_have_text("running")
    await page.get_by_role("button", name="Stop").click()
    await expect(said).to_contain_text("cancelled")


async def test_files_are_listed_uploaded_downloaded_and_deleted(
    console: Console, tmp_path: Path
) -> None:
    page = console.page
    files = page.locator("#files-list")
    await console.type("mkdir -p out && echo by hand > 'out/ä #1.txt'")
    await expect(files).to_contain_text("out/ä #1.txt")
    async with page.expect_download() as downloading:
        await files.get_by_role("button", name="out/ä #1.txt", exact=True).click()
    download = await downloading.value
    assert Path(await download.path()).read_text() == "by hand\n"

    upload = tmp_path / "data <b>.csv"
    upload.write_text("a,b\n1,2\n")
    await page.locator("#files-input").set_input_files(upload)
    await expect(files).to_contain_text("data <b>.csv")
    await console.type("cat 'data <b>.csv'")
    await console.shows("\na,b\n1,2")

    await files.get_by_role("button", name="Delete data <b>.csv").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(files).not_to_contain_text("data")


async def test_a_checkpoint_is_saved_and_restored(console: Console, tmp_path: Path) -> None:
    page = console.page
    await console.type("echo first > story; echo saved")
    await console.shows("\nsaved")
    async with page.expect_download() as downloading:
        await page.get_by_role("button", name="Save").click()
    archive = tmp_path / "archive.tar.gz"
    await (await downloading.value).save_as(archive)
    await expect(page.locator("#checkpoint-status")).to_contain_text("Saved")

    await console.type("echo second > story; touch later; echo changed")
    await console.shows("\nchanged")
    await expect(page.locator("#files-list")).to_contain_text("later")
    await page.locator("#checkpoint-input").set_input_files(archive)
    await page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    await expect(page.locator("#checkpoint-status")).to_contain_text("Restored")
    # The shell that stood on the old files is gone, and its place taken by itself.
    await expect(page.get_by_role("alert")).to_contain_text("was replaced")
    await console.connected()
    await console.type("cat story; echo; ls | wc -l")
    await console.shows("first\n")
    await expect(page.locator("#files-list")).not_to_contain_text("later")

    archive.write_bytes(archive.read_bytes()[:-100])
    await page.locator("#checkpoint-input").set_input_files(archive)
    await page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    await expect(page.locator("#checkpoint-status")).to_contain_text("damaged")


async def test_a_second_tab_takes_over_only_when_told(
    console: Console, context: BrowserContext, daemon: Daemon
) -> None:
    second = await Console.open(context, daemon.url)
    # It has not been here before, so it knows of no terminal; the session's name is remembered.
    await expect(second.page.locator("#terminal-status")).to_have_text("in use by another client")
    await second.page.get_by_role("button", name="Take over").click()
    await second.connected()
    await expect(console.page.locator("#terminal-status")).to_have_text(
        "taken over by another client"
    )
    await second.type("echo mine now")
    await second.shows("\nmine now")


async def test_a_flood_does_not_drown_the_page(console: Console) -> None:
    await console.type("yes | head -c 4000000; echo the-$((1+1))nd-end")
    await console.shows("the-2nd-end")
    await console.type("yes")
    await asyncio.sleep(1)
    await console.page.keyboard.press("Control+c")
    await console.type("echo still $((20+3))")
    await console.shows("\nstill 23")


async def test_the_token_is_asked_for_once(
    context: BrowserContext, fast_dir: Path, environ: dict[str, str]
) -> None:
    daemon = Daemon(fast_dir / "locked", environ | {"RUNNER_TOKEN": "open sesame"})
    async with daemon:
        console = await Console.open(context, daemon.url)
        page = console.page
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Token").fill("wrong")
        await dialog.get_by_role("button", name="Unlock").click()
        await expect(dialog.get_by_label("Token")).to_have_value("")
        await dialog.get_by_label("Token").fill("open sesame")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Connect").click()
        await console.connected()
        await console.type("echo let in")
        await console.shows("\nlet in")
        await page.reload()
        await console.connected()
        await expect(dialog).to_have_count(0)
        assert console.complaints == []
    assert processes_of(TEST_UID) == []


async def test_without_a_mouse(console: Console, daemon: Daemon) -> None:
    page = console.page
    await page.keyboard.press("F6")
    await page.keyboard.press("Control+a")
    await page.keyboard.type("print('by keyboard')")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("#run-output")).to_have_text("by keyboard\n")
    await page.keyboard.press("F6")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Refresh")).to_be_focused()
    await page.keyboard.press("F6")
    await page.keyboard.press("F6")
    await page.keyboard.type("echo and back\n")
    await console.shows("\nand back")
    await page.keyboard.press("Shift+F6")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Save")).to_be_focused()


async def test_everything_that_can_be_used_has_a_name(console: Console) -> None:
    nameless = await console.page.evaluate(
        """() => [...document.querySelectorAll("button, input:not([hidden]), select, textarea")]
             .filter((e) => e.offsetParent !== null)
             .filter((e) => !(e.innerText?.trim() || e.getAttribute("aria-label")
                              || e.labels?.length || e.title))
             .map((e) => e.outerHTML)"""
    )
    assert nameless == []


async def test_a_narrow_screen_shows_one_pane_at_a_time(console: Console) -> None:
    page = console.page
    await page.set_viewport_size({"width": 390, "height": 760})
    await asyncio.sleep(0.4)
    columns, _ = await console.size()
    assert 30 < columns < 60
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await console.type("echo narrow")
    await console.shows("\nnarrow")
    await shot(console, "console-narrow")
    tabs = page.get_by_role("navigation")
    for name, inside in (
        ("Run", "#run-code"),
        ("Files", "#files-upload"),
        ("Checkpoint", "#checkpoint-save"),
    ):
        await tabs.get_by_role("button", name=name).click()
        await expect(page.locator(inside)).to_be_visible()
        await expect(page.locator("#terminal")).to_be_hidden()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await tabs.get_by_role("button", name="Terminal").click()
    await console.type("echo back")
    await console.shows("\nback")


async def test_how_it_looks(console: Console) -> None:
    page = console.page
    await console.type("pip list 2>/dev/null | head -3; printf 'x,y\\n1,2\\n3,4\\n' > points.csv")
    await console.type("ls -l --color; uname -sr")
    await console.shows("Linux")
    await page.get_by_label("Code", exact=True).fill(
        "import csv\n\nwith open('points.csv') as file:\n    for row in csv.reader(file):\n"
        "        print(*row, sep='\\t')\n"
    )
    await page.get_by_role("button", name="Run", exact=True).last.click()
    await expect(page.locator("#run-output")).to_contain_text("3\t4")
    async with page.expect_download():
        await page.get_by_role("button", name="Save").click()
    await shot(console, "console-dark")
