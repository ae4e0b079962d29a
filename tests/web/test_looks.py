"""The page for every pair of eyes and hands: widths, schemes, motion, keyboard, screen readers."""

from __future__ import annotations

import pytest

from tests.app.rig import Running
from tests.web.browser import Page
from tests.web.conftest import Browse

pytestmark = [pytest.mark.chromium, pytest.mark.node]

# WCAG 2.2 §1.4.3: the contrast of every visible text with the ground behind it; [ratio, text] of each.
CONTRASTS = """(() => {
  const parse = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((x) => x / 255)
    .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    const text = texts.currentNode, node = text.parentElement;
    if (!text.data.trim() || !node.checkVisibility() || node.closest(":disabled, .unseen, script")) continue;
    const pair = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((a, b) => b - a);
    found.push([(pair[0] + 0.05) / (pair[1] + 0.05), text.data.trim()]);
  }
  return found;
})()"""

# Of every control: what a screen reader calls it.
NAMES = """[...document.querySelectorAll("button, input, [tabindex], summary")].map((node) =>
  node.getAttribute("aria-label") || node.labels?.[0]?.textContent || node.textContent.trim())"""


async def a_conversation(page: Page) -> None:
    """Something of everything that the page can show."""
    await page.ask("say: a first answer, and then a failure")
    await page.shows("#bars", "Reading the prompt")
    await page.do("click", "#figure")
    await page.ask("fail")
    await page.shows("#notice", "The answer failed")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_can_be_read(server: Running, browse: Browse, scheme: str) -> None:
    async with browse(colorScheme=scheme) as page:
        await page.open(server.http)
        before = await page.value(CONTRASTS)
        await a_conversation(page)
        after = await page.value(CONTRASTS)
        assert len(before) > 6
        assert len(after) > 10
        assert [text for ratio, text in before + after if ratio < 4.5] == []


async def test_a_narrow_phone_needs_no_sideways_scrolling(server: Running, browse: Browse) -> None:
    async with browse(viewport={"width": 320, "height": 568}, isMobile=True, hasTouch=True) as page:
        await page.open(server.http)
        await a_conversation(page)
        assert await page.value("document.documentElement.scrollWidth") <= 320
        assert await page.value("document.documentElement.scrollHeight") <= 568
        heights = (
            "[...document.querySelectorAll('button')].filter((b) => b.checkVisibility()).map((b) => b.offsetHeight)"
        )
        assert min(await page.value(heights)) >= 40


async def test_who_wants_no_motion_sees_none(server: Running, browse: Browse) -> None:
    motion = "document.getAnimations().length"
    async with browse(reducedMotion="no-preference") as page:
        await page.open(server.http)
        await page.ask("long 200")
        await page.state("speaking")
        assert await page.value(motion) > 0
        await page.do("emulateMedia", {"reducedMotion": "reduce"})
        assert await page.value(motion) == 0


async def test_the_keyboard_is_enough(page: Page) -> None:
    await page.do("focus", "#question")
    for key in "say: by keys alone":
        await page.do("press", key if key != " " else "Space", on="page.keyboard")
    await page.do("press", "Enter", on="page.keyboard")
    await page.shows("#captions .parley", "by keys alone")
    await page.state("ready")
    focused = []
    for _ in range(3):
        await page.do("press", "Tab", on="page.keyboard")
        focused.append(await page.value("document.activeElement.id || document.activeElement.textContent.trim()"))
    assert focused == ["Send", "talk", "figure"]  # Stop has nothing to stop


async def test_stopping_by_button_leaves_the_keyboard_somewhere(page: Page) -> None:
    await page.ask("long 200")
    await page.state("speaking")
    await page.do("press", "#stop", "Enter")
    await page.state("ready")
    assert await page.value("document.activeElement.id") == "question"


async def test_a_screen_reader_is_told(page: Page) -> None:
    await a_conversation(page)
    assert all(await page.value(NAMES))
    roles = "['state', 'captions', 'notice'].map((id) => document.getElementById(id).getAttribute('role'))"
    assert await page.value(roles) == ["status", "log", "alert"]
    assert await page.value("document.getElementById('captions').getAttribute('aria-live')") == "polite"
    await page.until("!document.querySelector('#captions [aria-busy]')")
    await page.ask("slow")
    await page.state("ready")
    assert await page.value("document.querySelectorAll('#captions .parley').length") >= 2
