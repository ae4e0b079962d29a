"""The page without a library, in a browser whose microphone says one sentence: a call over WebRTC."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Generator

import numpy as np
import pytest
import pytest_asyncio

from engine import load_config
from tests.app.rig import ROOT, Running, running
from tests.examples.programs import EXAMPLES, spoken, written
from tests.web.browser import UNPROCESSED, Chromium, browsing
from tests.web.elsewhere import Elsewhere, elsewhere

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[Elsewhere]:
    with elsewhere(tmp_path_factory.mktemp("elsewhere")) as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(place: Elsewhere) -> AsyncGenerator[Running]:
    spec = load_config(ROOT / "configs" / "nano.yaml")
    async with running(dataclasses.replace(spec, server={"allowed_origins": [place.origin]})) as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(server: Running, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Chromium]:
    voice = await asyncio.to_thread(spoken, server.http, "What can you do?")
    said = np.concatenate([np.zeros(24_000, np.int16), voice, np.zeros(30 * 24_000, np.int16)])
    async with browsing(written(tmp_path_factory.mktemp("microphone") / "user.wav", said)) as one:
        yield one


async def test_the_page_talks_and_hangs_up(server: Running, place: Elsewhere, browser: Chromium) -> None:
    url = place.page("browser.html", (EXAMPLES / "browser.html").read_text())
    async with browser.page() as page:
        await page.before(UNPROCESSED)
        await page.do("goto", f"{url}?server={server.http}")
        await page.do("click", "button")
        await page.shows("p", "you: what can you do")
        await page.shows("p", "answer: ")
        assert await page.value("document.querySelector('audio').srcObject.getAudioTracks().length") == 1
        await page.shows("button", "Hang up")
        await page.do("click", "button")
        await page.shows("button", "Talk")
        assert await page.errors() == []
    await server.empty()


async def test_without_a_server_the_page_says_so(place: Elsewhere, browser: Chromium) -> None:
    url = place.page("browser.html", (EXAMPLES / "browser.html").read_text())
    async with browser.page() as page:
        await page.before(UNPROCESSED)
        await page.do("goto", f"{url}?server=http://127.0.0.1:1")
        await page.do("click", "button")
        await page.until("document.querySelector('p').textContent !== ''")
        await page.shows("button", "Talk")
