"""The voices in the model's menu: readable, chosen, and heard before they are."""

from __future__ import annotations

import pytest

from tests.app.rig import Running
from tests.web.browser import Chromium
from tests.web.test_page import loading

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

DETAILS = [
    {"id": "tone", "name": "Tone, a whistle", "language": ""},
    {"id": "af_heart", "name": "Heart, a woman", "language": "en-US"},
    {"id": "de-0", "name": "Thorsten", "language": "de"},
]
ROWS = """[...document.querySelectorAll("#voices .choice")].map((row) => [
  row.querySelector("span").firstChild.data,
  row.querySelector("small")?.textContent,
  row.querySelector("button").title,
])"""

# The requests for previews, which are refused while `window.refused` is true.
ASKED = """
window.previews = [];
const ask = window.fetch;
window.fetch = async (...what) => {
  if (!String(what[0]).endsWith("/audio/speech")) return ask(...what);
  window.previews.push(JSON.parse(what[1].body));
  return window.refused ? Response.json({ error: { message: "no" } }, { status: 503 }) : ask(...what);
};
"""


async def test_each_voice_is_shown_by_name_kind_and_language(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before(loading({"voice_details": DETAILS}))
        await page.open(server.http)
        await page.shows("#voices", "Thorsten")
        assert await page.value(ROWS) == [
            ["Tone", "Whistle", "Hear Tone"],
            ["Heart", "Woman · American English", "Hear Heart"],
            ["Thorsten", "German", "Hear Thorsten"],
        ]
        await page.shows("#model-name", "script · Tone")
        await page.do("click", "#open-model")
        await page.do("check", "#voices [value=af_heart]")
        await page.shows("#model-name", "script · Heart")


async def test_a_preview_is_in_the_voices_language_and_its_key_stops_it(server: Running, browser: Chromium) -> None:
    key = "document.querySelectorAll('#voices .choice button')[2]"
    async with browser.page() as page:
        await page.before(loading({"voice_details": [*DETAILS[:2], {**DETAILS[2], "id": "tone"}]}))
        await page.before(ASKED)
        await page.open(server.http)
        await page.shows("#voices", "Thorsten")
        await page.do("click", "#open-model")
        await page.value(f"{key}.click()")
        assert await page.value(f"{key}.title") == "Stop Thorsten"
        await page.until(f"{key}.title === 'Hear Thorsten'")  # it is over
        (asked,) = await page.value("window.previews")
        assert asked["input"].startswith("Hallo")
        assert asked["voice"] == "tone"
        await page.value(f"{key}.click()")
        await page.value(f"{key}.click()")
        assert await page.value(f"{key}.title") == "Hear Thorsten"
        await page.value("void (window.refused = true)")
        await page.value(f"{key}.click()")
        await page.shows("#notice", "Thorsten could not be played: try again.")
        assert await page.value(f"{key}.title") == "Hear Thorsten"
