"""The page without a library, in a browser whose microphone says one sentence: a call over WebRTC."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.app.rig import Running
from tests.examples.programs import EXAMPLES
from tests.web.browser import UNPROCESSED, Chromium
from tests.web.elsewhere import Elsewhere
from tests.web.other_origin import nano_server, place, saying

__all__ = ["nano_server", "place"]

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(server: Running, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Chromium]:
    async with saying("What is two plus two?", server, tmp_path_factory.mktemp("microphone")) as one:
        yield one


async def test_the_page_talks_and_hangs_up(server: Running, place: Elsewhere, browser: Chromium) -> None:
    url = place.page("browser.html", (EXAMPLES / "browser.html").read_text())
    async with browser.page() as page:
        await page.before(UNPROCESSED)
        await page.do("goto", f"{url}?server={server.http}")
        await page.do("click", "button")
        await page.shows("p", "you: what is two plus two")
        await page.shows("p", "answer: 2 plus 2 is 4")
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
