"""The page under a finger: every control has room for one, and everything is done by touch alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.app.rig import Running
from tests.web.browser import MODULES, Chromium, Page
from tests.web.test_states import LED

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

STYLE = (MODULES.parent / "src" / "style.css").read_text(encoding="utf-8")
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "isMobile": True, "hasTouch": True, "locale": "en"}
PORTRAIT, LANDSCAPE, SMALL = (390, 844), (844, 390), (320, 568)

# The controls that lack room for a finger of 44 pixels, or are covered there. (Points are rounded: 21, and not 22, on
# each side.)
MISSED = """(() => {
  const top = document.querySelector("dialog[open], :popover-open, #inspector:not([hidden])") ?? document.body;
  const controls = [...top.querySelectorAll("button, select, textarea, input:not(.unseen)")];
  const reach = (one, hit) => one.contains(hit) || hit?.closest("label")?.control === one;
  return controls.filter((one) => one.checkVisibility() && !one.disabled).flatMap((one) => {
    one.scrollIntoView({ block: "center", inline: "center" });
    const { left, top, width, height } = one.getBoundingClientRect();
    const [x, y] = [left + width / 2, top + height / 2];
    const edges = [[0, 0], [-21, 0], [21, 0], [0, -21], [0, 21]];
    const met = edges.map(([right, down]) => document.elementFromPoint(x + right, y + down));
    const name = one.id || one.textContent || one.className;
    return met.every((hit) => reach(one, hit)) ? [] : [`${name} ${width} x ${height}`];
  });
})()"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("led", LED)
async def test_every_control_has_room_for_a_finger(led: str, server: Running, browser: Chromium) -> None:
    missed: dict[str, list[str]] = {}
    async with browser.page(**PHONE) as page:
        async for state in LED[led](page, server.http):
            for width, height in (LANDSCAPE, SMALL, PORTRAIT):
                await page.do("setViewportSize", {"width": width, "height": height})
                await page.value("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
                missed[f"{state} at {width} x {height}"] = await page.value(MISSED)
    assert {state: controls for state, controls in missed.items() if controls} == {}


async def test_a_control_that_is_too_small_is_found(server: Running, browser: Chromium) -> None:
    async with browser.page(**PHONE) as page:
        await page.open(server.http)
        await page.value("void (document.getElementById('send').style.cssText = 'min-height: 30px; height: 30px')")
        assert [one.split()[0] for one in await page.value(MISSED)] == ["send"]


STILL = """new Promise((found) => {
  let before = "", frames = 0;
  const look = () => {
    const one = %s;
    one.scrollIntoView({ block: "nearest", inline: "nearest" });
    const { left, top, width, height } = one.getBoundingClientRect();
    frames = before === `${left} ${top}` ? frames + 1 : 0;
    before = `${left} ${top}`;
    if (frames < 10) requestAnimationFrame(look);
    else found([left + width / 2, top + height / 2]);
  };
  look();
})"""
"""The middle of an element, once it has not moved for ten frames: a menu grows while its devices are listed."""


class Finger:
    """One finger on a page's screen."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def down(self, selector: str) -> None:
        place = f"document.querySelector({json.dumps(selector)})"
        await self._page.until(f"{place}?.checkVisibility()")
        x, y = await self._page.value(STILL % place)
        await self._send("touchStart", [{"x": x, "y": y}])

    async def up(self) -> None:
        await self._send("touchEnd", [])

    async def tap(self, selector: str) -> None:
        await self.down(selector)
        await self.up()

    async def _send(self, type: str, points: Sequence[dict[str, float]]) -> None:
        await self._page.do("send", "Input.dispatchTouchEvent", {"type": type, "touchPoints": points}, on="cdp")


async def touched(page: Page) -> Finger:
    """Emulate a touch screen."""
    await page.do("send", "Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 1}, on="cdp")
    return Finger(page)


async def test_a_conversation_is_held_by_touch(server: Running, browser: Chromium) -> None:
    async with browser.page(**PHONE) as page:
        await page.open(server.http)
        finger = await touched(page)
        await finger.tap("#start")
        await page.state("listening")
        for state in ("muted", "listening"):
            await finger.tap("#talk")
            await page.state(state)
        await page.value("speak(0.8)")
        await page.shows("#captions .answer", "I heard")
        await page.state("listening")
        await finger.tap("#camera")
        await page.until("document.querySelector('#preview video')?.videoWidth > 0")
        await page.do("fill", "#question", "long 200")
        await finger.tap("#send")
        await page.state("speaking")
        await page.shows("#hint", "tap Stop")
        await finger.tap("#stop")
        await page.until("document.querySelector('#captions .answer.interrupted')")
        await finger.tap("#camera")
        await page.until("document.querySelector('#preview video') === null")
        await finger.tap("#captions .answer .meta button:last-child")
        await page.until("/Copied|Not allowed/.test(document.querySelector('#captions .answer .meta').textContent)")
        await finger.tap("#end")
        await page.state("idle")
        assert await page.errors() == []


async def test_a_held_finger_is_push_to_talk(server: Running, browser: Chromium) -> None:
    async with browser.page(**PHONE) as page:
        await page.open(server.http)
        finger = await touched(page)
        await finger.tap("#open-microphones")
        await finger.tap("#modes [value=hold]")
        await page.shows("#start", "Hold to talk")
        await finger.tap("#open-microphones")
        await page.until("!document.getElementById('microphone-menu').matches(':popover-open')")
        for key in ("#start", "#talk", "#orb"):
            await finger.down(key)
            await page.state("hearing")
            await finger.up()
            await page.state("ready", "thinking", "speaking")
            await page.do("press", "Escape", on="page.keyboard")


async def test_menus_settings_and_inspector_are_used_by_touch(server: Running, browser: Chromium) -> None:
    async with browser.page(**PHONE) as page:
        await page.open(server.http)
        finger = await touched(page)
        await finger.tap("#examples button")
        await page.shows("#captions .answer", "three")
        await page.state("ready")
        for opener, menu in (("#open-model", "model"), ("#open-cameras", "camera-menu"), ("#open-menu", "menu")):
            await finger.tap(opener)
            await page.until(f"document.getElementById('{menu}').matches(':popover-open')")
            await finger.tap("h1")  # beside the menu
            await page.until(f"!document.getElementById('{menu}').matches(':popover-open')")
        await finger.tap("#open-settings")
        await finger.tap("#page-tools")
        await page.until("!document.getElementById('page-tools').checked")
        await finger.tap("#tab-connection")
        await finger.tap("#open-doctor")
        await page.until("document.querySelectorAll('#steps [data-found]').length === 6")
        await finger.tap("#change-key")
        await finger.tap("#show-key")
        await page.until("document.getElementById('key').type === 'text'")
        await finger.tap("#no-key")
        await finger.tap("#open-inspector")
        for panel in ("events", "tools", "session", "timing"):
            await finger.tap(f"#tab-{panel}")
            await page.until(f"document.getElementById('panel-{panel}').checkVisibility()")
            if panel == "events":
                await finger.tap("#kinds button:last-child")
                await finger.tap("#kinds button")
                await finger.tap("#events .event")
                await page.until("document.querySelector('#events pre') !== null")
        await finger.tap("#close-inspector")
        await finger.tap("#open-menu")
        await finger.tap("#clear")
        await page.until("document.getElementById('captions').childElementCount === 0")


async def test_no_keyboard_is_named_where_fingers_point(server: Running, browser: Chromium) -> None:
    keys = re.compile(r"\b(click|press|space|esc)\b|\((M|C)\)", re.IGNORECASE)
    shown = (
        "document.body.innerText + [...document.querySelectorAll('.keys [title]')].map((one) => one.title).join(' ')"
    )
    async with browser.page(**{**PHONE, "viewport": {"width": 844, "height": 390}}) as page:
        await page.open(server.http, handsFree=False)
        assert keys.findall(await page.value(shown)) == []
        assert not await page.value("document.getElementById('open-help').checkVisibility()")
        await page.ask("long 200")
        await page.state("speaking")
        await page.shows("#hint", "Tap Stop to interrupt")
        assert keys.findall(await page.value(shown)) == []
        await page.do("click", "#stop")
        await page.state("ready")
        await page.shows("#hint", "Hold the microphone and speak")


async def test_nothing_appears_only_under_a_mouse() -> None:
    """A finger does not hover: such a rule may colour what is there, and no more."""
    rules = re.findall(r"([^{}]*:hover[^{}]*)\{([^{}]*)\}", STYLE)
    changed = {name for _, body in rules for name in re.findall(r"([a-z-]+):", body)}
    assert changed <= {"background", "border-color", "color", "filter", "text-decoration-color"}
    assert len(rules) > 4
