"""The page in a browser, against a real server: what a newcomer presses, reads and hears."""

from __future__ import annotations

import pytest

from tests.web.browser import Page

pytestmark = [pytest.mark.chromium, pytest.mark.node]


async def test_a_typed_question_is_answered_aloud_and_in_words(page: Page) -> None:
    await page.listen()
    await page.ask("say: hello there my friend")
    await page.sound()
    await page.shows("#captions .user", "say: hello there my friend")
    await page.shows("#captions .parley", "hello there my friend")
    await page.state("ready")
    await page.hush()
    assert await page.errors() == []
