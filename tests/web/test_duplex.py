"""The page with a model that listens while it speaks: it holds a conversation, and offers nothing to type."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.app.rig import LoudnessVad, Running, running
from tests.app.scripted import duplex_spec
from tests.web.browser import Page

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[Running]:
    async with running(duplex_spec(), vad=LoudnessVad) as one:
        yield one


@pytest.mark.parametrize("transport", ["webrtc", "websocket"])
async def test_the_page_holds_a_conversation(page: Page, server: Running, transport: str) -> None:
    await page.open(server.http, transport=transport)
    await page.until("document.getElementById('question').disabled")
    await page.start()
    for count in range(2):
        await page.value("speak(0.4)")
        await page.until(f"document.querySelectorAll('#captions .answer').length > {count}")
        await page.until("[...document.querySelectorAll('#captions .answer')].at(-1).textContent.includes('I heard')")
        await page.until(f"window.wire.filter((event) => event.type === 'response.done').length > {count}")
    await page.do("click", "#end")
    await page.state("idle")
    assert await page.wire("error") == []
    assert await page.errors() == []
    await server.empty()
