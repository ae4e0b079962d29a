"""The view of the server's memory: off until the user wants it, then shown, exported and deleted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.app.rig import LoudnessVad, Running, running, script_spec
from tests.web.browser import Chromium, Page
from tests.web.test_page import TAKEN

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

FACTS = "[...document.querySelectorAll('#facts li')].map((one) => one.textContent)"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memory")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def remembering(folder: Path) -> AsyncGenerator[Running]:
    async with running(script_spec(memory={"path": str(folder / "facts.sqlite")}), vad=LoudnessVad) as one:
        assert one.service.facts is not None
        await one.service.facts.facts("")  # its thread begins with the first request
        yield one


async def open_session_tab(page: Page, server: Running, **choices: Any) -> None:
    await page.open(server.http, **choices)
    await page.shows("#abilities", "Hears speech")
    await page.do("click", "#open-inspector")
    await page.do("click", "#tab-session")


async def remember(page: Page, name: str, value: str) -> None:
    await page.ask(f"tool remember {json.dumps({'name': name, 'value': value})}")
    await page.shows("#facts", value)


async def test_facts_are_listed_exported_and_deleted(remembering: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before(TAKEN)
        await open_session_tab(page, remembering)
        await page.shows("#facts-note", "Nothing is stored about you")
        await page.do("check", "#remembers")
        await page.shows("#facts-note", "Nothing yet")
        await remember(page, "colour", "a very rare teal")
        await remember(page, "name", "Ann")  # facts of the same second are in the order of their names
        assert await page.value(FACTS) == ["coloura very rare teal", "nameAnn"]
        await page.do("click", "#export-facts")
        await page.until("window.taken.length === 1")
        assert (await page.value("window.taken[0][0]")) == "memory.json"
        await page.do("click", "[aria-label='Delete name']")
        await page.until(f"{FACTS}.join() === 'coloura very rare teal'")
        assert await page.errors() == []
        kept = await page.value("JSON.parse(localStorage.getItem('parley.choices'))")
    async with browser.page() as page:
        await open_session_tab(page, remembering, remembers=kept["remembers"], user=kept["user"])
        assert await page.value("document.getElementById('remembers').checked")
        await page.shows("#facts", "teal")
        await page.do("click", "#delete-facts")
        await page.shows("#delete-facts", "Press again")
        assert len(await page.value(FACTS)) == 1, "one press deletes nothing"
        await page.do("click", "#delete-facts")
        await page.shows("#facts-note", "Nothing yet")
        assert await page.errors() == []


async def test_a_session_that_the_user_does_not_want_remembered_has_no_memory(
    remembering: Running, browser: Chromium
) -> None:
    async with browser.page() as page:
        await open_session_tab(page, remembering)
        await page.ask("say: hello")
        await page.shows("#captions .answer", "hello")
        assert all("memory" not in one["session"]["parley"] for one in await page.wire("session.update"))
        await page.do("check", "#remembers")
        await page.until("window.wire.some((one) => one.session?.parley?.memory?.user?.startsWith('browser-'))")
        await page.do("uncheck", "#remembers")
        await page.until(
            "window.wire.some((one) => one.type === 'session.update' && one.session.parley?.memory === null)"
        )


async def test_another_browser_sees_none_of_the_facts(remembering: Running, browser: Chromium) -> None:
    async with browser.page() as one, browser.page() as other:
        for page in (one, other):
            await open_session_tab(page, remembering)
            await page.do("check", "#remembers")
            await page.shows("#facts-note", "Nothing yet")
        await remember(one, "pet", "a heron")
        await other.do("click", "#tab-timing")
        await other.do("click", "#tab-session")
        await other.shows("#facts-note", "Nothing yet")


async def test_a_file_that_cannot_be_read_is_named(remembering: Running, browser: Chromium, folder: Path) -> None:
    async with browser.page() as page:
        await open_session_tab(page, remembering)
        await page.do("check", "#remembers")
        await remember(page, "pet", "a heron")
        with closing(sqlite3.connect(folder / "facts.sqlite")) as other:
            other.execute("BEGIN EXCLUSIVE")
            await page.do("click", "#facts button")
            await page.shows("#facts-note", "Nothing was deleted. The server's memory can't be used now")
        assert len(await page.value(FACTS)) == 1


async def test_a_server_without_memory_shows_none(page: Page) -> None:
    await page.shows("#abilities", "Hears speech")
    await page.do("click", "#open-inspector")
    await page.do("click", "#tab-session")
    assert not await page.value("document.getElementById('memory').checkVisibility()")
    assert [url for url in await page.requests() if "memory" in url] == []
