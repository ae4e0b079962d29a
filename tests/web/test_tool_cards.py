"""Calls of tools are cards in the script, with what the voice says while a tool runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.app.rig import Running
from tests.web.browser import Chromium, Page
from tests.web.test_states import STALL

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

CALL = {"id": "item_call", "type": "mcp_call", "name": "tides", "arguments": '{"day": "today"}', "output": None}
LINE = "One moment, I'm checking."


async def receive(page: Page, type: str, **fields: Any) -> None:
    """Let the page's newest socket receive an event."""
    event = json.dumps({"type": type, **fields})
    await page.value(f"window.newest.onmessage({{ data: {json.dumps(event)} }})")


async def connected(page: Page, server: Running) -> None:
    await page.before(STALL)
    await page.open(server.http)
    await page.ask("say: first")
    await page.shows("#captions .answer", "first")
    await page.state("ready")


async def say_line(page: Page) -> None:
    """Let the server speak its line."""
    waits = {"id": "line", "status": "in_progress", "metadata": {"purpose": "tool_wait"}}
    await receive(page, "response.created", response=waits)
    await receive(page, "response.output_item.added", response_id="line", item={"id": "item_line", "type": "message"})
    await receive(page, "response.output_audio_transcript.delta", item_id="item_line", delta=LINE)
    await receive(page, "response.done", response={**waits, "status": "completed"})


ANSWERS = "document.querySelectorAll('#captions .answer').length"


async def test_a_tool_of_the_server_is_a_card_that_shows_the_line_spoken_meanwhile(
    server: Running, browser: Chromium
) -> None:
    async with browser.page() as page:
        await connected(page, server)
        await receive(page, "response.output_item.done", response_id="r", item=CALL)
        await page.until("document.querySelector('#captions .tool').dataset.status === 'running'")
        await say_line(page)
        await page.shows("#captions .tool .said", LINE)
        assert await page.value(ANSWERS) == 1, "a line is no answer"
        await receive(page, "conversation.item.done", item={**CALL, "output": "High at noon."})
        await page.shows("#captions .tool .result", "High at noon.")
        assert not await page.value("document.querySelector('#captions .tool .said').checkVisibility()")
        await page.ask("say: high at noon")
        await page.shows("#captions .answer:last-child", "high at noon")
        assert await page.value(ANSWERS) == 2
        assert await page.value("document.querySelectorAll('#calls .tool').length") == 1


async def test_a_tool_of_the_server_that_fails_says_why(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await connected(page, server)
        await receive(page, "response.output_item.done", response_id="r", item=CALL)
        await receive(page, "conversation.item.done", item={**CALL, "error": {"message": "The server is away."}})
        await page.shows("#captions .tool[data-status=failed] .result", "The server is away.")


async def test_a_line_without_a_card_is_shown_as_an_answer(server: Running, browser: Chromium) -> None:
    """Nothing that is heard may be missing from the script."""
    async with browser.page() as page:
        await connected(page, server)
        await say_line(page)
        await page.shows("#captions .answer:last-child", LINE)
