"""The page for every pair of eyes and hands: widths, schemes, motion, keyboard, screen readers."""

from __future__ import annotations

from typing import Any

import pytest

from engine.worker.models.nano.examples import EXAMPLES
from tests.app.rig import Running
from tests.web.browser import Chromium, Page
from tests.web.test_page import loading

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

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

PHONE = {"viewport": {"width": 360, "height": 640}, "isMobile": True, "hasTouch": True}


async def a_conversation(page: Page) -> None:
    """Something of everything that the page can show."""
    await page.ask("say: a first answer, and then a failure")
    await page.shows("#bars", "Network and playback")
    await page.ask("fail")
    await page.shows("#notice", "The answer failed")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_can_be_read(server: Running, browser: Chromium, scheme: str) -> None:
    async with browser.page(colorScheme=scheme) as page:
        await page.open(server.http)
        before = await page.value(CONTRASTS)
        await a_conversation(page)
        after = await page.value(CONTRASTS)
        assert len(before) > 6
        assert len(after) > 10
        assert [(ratio, text) for ratio, text in before + after if ratio < 4.5] == []


async def test_a_phone_needs_no_sideways_scrolling(server: Running, browser: Chromium) -> None:
    for width in (360, 320):
        async with browser.page(**{**PHONE, "viewport": {"width": width, "height": 568}}) as page:
            await page.open(server.http)
            await a_conversation(page)
            assert await page.value("document.documentElement.scrollWidth") <= width
            assert await page.value("document.documentElement.scrollHeight") <= 568
            buttons = "[...document.querySelectorAll('button')].filter((b) => b.checkVisibility())"
            assert min(await page.value(f"{buttons}.map((b) => b.offsetHeight)")) >= 40
            clipped = f"{buttons}.filter((b) => b.scrollWidth > b.clientWidth + 1).map((b) => b.textContent)"
            assert await page.value(clipped) == []


async def test_on_a_phone_nothing_covers_the_words_or_squeezes_the_log(server: Running, browser: Chromium) -> None:
    async with browser.page(**PHONE) as page:
        await page.open(server.http)
        await page.do("click", "#camera")
        await page.until("document.querySelector('#preview video')?.videoWidth > 0")
        await a_conversation(page)
        edge = "document.querySelector('%s').getBoundingClientRect().%s"
        assert await page.value(edge % ("#preview", "top")) >= await page.value(edge % ("#scroll", "bottom"))
        await page.do("click", "#open-inspector")
        await page.do("click", "#tab-events")
        assert await page.value(edge % ("#events", "height")) > 200
        assert await page.value(edge % ("#inspector", "bottom")) == await page.value(edge % ("main", "bottom"))


@pytest.mark.parametrize(("width", "height", "lines"), [(1440, 900, 1), (844, 390, 1), (390, 844, 3), (320, 568, 3)])
async def test_at_most_three_short_examples_are_shown_whole(
    server: Running, browser: Chromium, width: int, height: int, lines: int
) -> None:
    async with browser.page(viewport={"width": width, "height": height}) as page:
        await page.before(loading({"examples": EXAMPLES}))
        await page.open(server.http)
        await page.shows("#examples", "What can you do?")
        boxes = "[...document.querySelectorAll('#examples button')].map((one) => one.getBoundingClientRect().toJSON())"
        found = await page.value(boxes)
        assert len(found) == 3
        assert len({box["top"] for box in found}) <= lines
        assert min(box["left"] for box in found) >= 0
        assert max(box["right"] for box in found) <= width
        assert await page.value("document.getElementById('about').getBoundingClientRect().height") < 60 * lines


async def test_on_a_phone_the_examples_leave_the_answer_in_sight(server: Running, browser: Chromium) -> None:
    async with browser.page(**{**PHONE, "viewport": {"width": 390, "height": 844}}) as page:
        await page.open(server.http)
        await page.shows("#examples", "say:")
        await page.ask("say: an answer that is to be read")
        await page.shows("#captions .answer", "read")
        await page.state("ready")
        await page.until("!document.getElementById('examples').checkVisibility()")
        edge = "document.querySelector('%s').getBoundingClientRect().%s"
        await page.until(f"{edge % ('#captions .answer', 'top')} >= {edge % ('#scroll', 'top')}")
        assert await page.value(edge % ("#captions .answer", "bottom")) <= await page.value(
            edge % ("#scroll", "bottom")
        )
        assert await page.value("document.documentElement.scrollWidth") <= 390


async def test_an_interrupted_answer_is_marked_in_its_row(server: Running, browser: Chromium) -> None:
    """The mark stands beside the figure, where no text wraps, and on the smallest phone in one line."""
    row = "document.querySelector('.answer.interrupted .meta')"
    async with browser.page(**{**PHONE, "viewport": {"width": 320, "height": 568}}) as page:
        await page.open(server.http)
        await page.ask("long 200")
        await page.state("speaking")
        await page.do("click", "#stop")
        await page.until(f"{row} !== null")
        assert await page.value(f"getComputedStyle({row}, '::before').content") == '"Interrupted"'
        await page.until(f"{row}.querySelector('button').checkVisibility()")  # the sound, the widest part
        assert await page.value(f"{row}.scrollWidth <= {row}.clientWidth")
        ends = "[...document.querySelectorAll('.interrupted .words, .interrupted .words > *')]"
        assert await page.value(f"{ends}.map((one) => getComputedStyle(one, '::after').content)") == ["none", "none"]


# The controls of what is open that one of its edges cuts.
CUT = """(() => {
  const box = document.querySelector(":popover-open, dialog[open] [role=tabpanel]:not([hidden])");
  const { bottom } = box.getBoundingClientRect();
  const controls = [...box.querySelectorAll("button, input, select, textarea")].filter((one) => one.checkVisibility());
  const boxes = controls.map((one) => [one.id || one.value || one.title, one.getBoundingClientRect()]);
  return boxes.filter(([, edge]) => edge.top < bottom - 28 && edge.bottom > bottom).map(([name]) => name);
})()"""


@pytest.mark.parametrize("height", [390, 360])
async def test_in_a_low_window_no_menu_cuts_a_control_or_covers_the_dock(
    server: Running, browser: Chromium, height: int
) -> None:
    dock = "document.getElementById('ask').getBoundingClientRect().top"
    async with browser.page(viewport={"width": 844, "height": height}) as page:
        await page.open(server.http)
        await page.shows("#abilities", "Hears speech")
        for opener, menu in (("model", "model"), ("menu", "menu"), ("microphones", "microphone-menu")):
            await page.do("click", f"#open-{opener}")
            await page.until(f"document.getElementById('{menu}').matches(':popover-open')")
            assert await page.value(CUT) == [], menu
            bottom = await page.value(f"document.getElementById('{menu}').getBoundingClientRect().bottom")
            assert bottom <= await page.value(dock) - 8, menu
            await page.do("press", "Escape", on="page.keyboard")
        await page.do("click", "#open-settings")
        for tab in ("conversation", "connection"):
            await page.do("click", f"#tab-{tab}")
            assert await page.value(CUT) == [], tab
        small = "max-height: 90px; min-height: 0"
        await page.value(f"void (document.getElementById('panel-connection').style.cssText = '{small}')")
        assert await page.value(CUT) != [], "a control that is cut is found"


async def test_nothing_jumps_while_a_conversation_goes_on(page: Page) -> None:
    where = "document.getElementById(id).getBoundingClientRect()"
    places = f"['talk', 'ask', 'question', 'open-inspector'].map((id) => [{where}.x, {where}.y])"
    before = await page.value(places)
    await page.ask("long 60")
    await page.state("speaking")
    assert await page.value(places) == before


BOXES = """[...document.querySelectorAll("#captions p, .meta, .stage, #state, #hint, #orb, #ask, #ask button")]
  .filter((one) => one.checkVisibility() && !["send", "stop"].includes(one.id))
  .map((one) => [one.id || one.className || one.tagName, one.getBoundingClientRect().toJSON()])
  .map(([name, { x, y, height }]) => [name, x, y, height])"""


# Each button that is no tab and no row of the events: its class among the three, and how it looks.
BUTTONS = """[...document.querySelectorAll("button:not([role=tab], .event)")].map((one) => {
  const { minHeight, borderRadius, fontFamily, fontSize, fontWeight } = getComputedStyle(one);
  const weights = ["primary", "secondary", "quiet"].filter((name) => one.classList.contains(name));
  const look = [minHeight, borderRadius, fontFamily, fontSize, fontWeight].join();
  return [one.id || one.textContent, weights.length, look];
})"""


@pytest.mark.parametrize("screen", [{"viewport": {"width": 1280, "height": 800}}, PHONE], ids=["desktop", "phone"])
async def test_all_buttons_are_of_one_style_in_three_weights(
    server: Running, browser: Chromium, screen: dict[str, Any]
) -> None:
    async with browser.page(**screen) as page:
        await page.open(server.http)
        await page.shows("#examples", "say:")
        await a_conversation(page)
        found = await page.value(BUTTONS)
        assert len(found) > 45
        assert [name for name, weights, _ in found if weights != 1] == []
        assert len({style for _, _, style in found}) == 1, found


# Where the orb is: its middle and width; and what must keep its place once the first words are there.
ORB = """(({ x, y, width }) => [x + width / 2, y + width / 2, width])(
  document.getElementById("orb").getBoundingClientRect())"""
KEPT = """["orb", "state", "ask", "talk", "question"].map((id) => document.getElementById(id).getBoundingClientRect())
  .map(({ x, y }) => [x, y])"""
STILL = "document.getElementById('orb').getAnimations().length === 0"


@pytest.mark.parametrize(("width", "height", "least"), [(1440, 900, 340), (390, 844, 240), (844, 390, 120)])
async def test_in_a_call_the_orb_is_large_until_the_first_words_and_then_nothing_moves(
    server: Running, browser: Chromium, width: int, height: int, least: int
) -> None:
    async with browser.page(viewport={"width": width, "height": height}) as page:
        await page.open(server.http)
        await page.start()
        await page.until(STILL)
        x, y, across = await page.value(ORB)
        assert across >= least
        assert abs(x - width / 2) < (1 if height > 600 else width / 4)  # on a low screen its words stand beside it
        await page.value("speak(2.0)")
        await page.until(f"document.body.dataset.look === 'script' && {STILL}")
        small_x, small_y, small = await page.value(ORB)
        assert small < across / 1.5
        assert small_y > y
        assert small_x < x or width < 400
        first = await page.value(KEPT)
        for words in ("I heard", "one more"):
            await page.shows("#captions", words)
            await page.state("listening")
            assert await page.value(KEPT) == first, "0 pixels"
            await page.ask("say: one more")


async def test_the_orb_moves_to_its_place_unless_less_motion_is_wanted(server: Running, browser: Chromium) -> None:
    watch = "Element.prototype.animate = new Proxy(Element.prototype.animate, { apply: () => void window.moves++ })"
    for motion, moves in (("no-preference", 1), ("reduce", 0)):
        async with browser.page(reducedMotion=motion) as page:
            await page.before(f"window.moves = 0; {watch}")
            await page.open(server.http)
            await page.ask("say: hello")
            await page.shows("#captions .answer", "hello")
            assert (await page.value("window.moves") >= moves) is True
            assert (await page.value("window.moves") == 0) is (moves == 0)


async def test_the_ring_of_the_orb_follows_the_users_voice(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before(LINES)
        await page.open(server.http)
        await page.start()
        quiet = await page.value("window.lines.listening.at(-1)")
        await page.value("speak(1.0)")
        await page.until(f"window.lines.hearing?.some((width) => width > {quiet} * 1.5)")


# How wide the orb's lines are, in parts of its width, by the state of the conversation.
LINES = """{
  window.lines = {};
  const { stroke } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.stroke = function () {
    const lines = (window.lines[document.body.dataset.state] ??= []);
    lines.push(this.lineWidth / this.canvas.width);
    stroke.call(this);
  };
}"""


async def test_a_welcome_is_centred_and_has_one_large_start(server: Running, browser: Chromium) -> None:
    middle = "(({ x, width }) => x + width / 2)(document.getElementById(%r).getBoundingClientRect())"
    for width, height in ((1440, 900), (390, 844)):
        async with browser.page(viewport={"width": width, "height": height}) as page:
            await page.open(server.http)
            for part in ("orb", "invitation", "start"):
                assert await page.value(middle % part) == pytest.approx(width / 2, abs=1), part
            filled = "[...document.querySelectorAll('button.primary')].filter((one) => one.checkVisibility())"
            assert await page.value(f"{filled}.map((one) => one.id)") == ["start"]


async def test_each_popover_opens_at_its_button(page: Page) -> None:
    buttons = "[...document.querySelectorAll('button[popovertarget]')].map((one) => one.id)"
    box = "document.getElementById(%r).getBoundingClientRect().toJSON()"
    for name in await page.value(buttons):
        await page.do("click", f"#{name}")
        opened = await page.value(f"document.getElementById({name!r}).getAttribute('popovertarget')")
        await page.until(f"document.getElementById({opened!r}).matches(':popover-open')")
        await page.until(f"document.getElementById({name!r}).getAttribute('aria-expanded') === 'true'")
        button = await page.value(box % name)
        popover = await page.value(box % opened)
        assert popover["left"] < button["right"], name
        assert popover["right"] > button["left"], name
        bar = await page.value(
            f"document.getElementById({name!r}).closest('header, form').getBoundingClientRect().toJSON()"
        )
        assert popover["top"] - bar["bottom"] >= 8 or bar["top"] - popover["bottom"] >= 8, name
        await page.do("press", "Escape", on="page.keyboard")


async def test_on_a_phone_each_entry_of_the_menu_is_one_line(server: Running, browser: Chromium) -> None:
    async with browser.page(**PHONE) as page:
        await page.open(server.http)
        await page.do("click", "#open-menu")
        await page.until("document.getElementById('menu').matches(':popover-open')")
        heights = "[...document.querySelectorAll('#menu button')].map((one) => one.offsetHeight)"
        assert max(await page.value(heights)) <= 48
        assert await page.value("document.getElementById('menu').getBoundingClientRect().right") <= 360 - 12


async def test_on_a_small_phone_each_setting_shows_its_whole_name(server: Running, browser: Chromium) -> None:
    names = "[...document.querySelectorAll('.setting > :first-child')].filter((one) => one.checkVisibility())"
    cut = f"{names}.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
    async with browser.page(**{**PHONE, "viewport": {"width": 320, "height": 568}}) as page:
        await page.open(server.http)
        await page.do("click", "#open-settings")
        for tab, count in (("conversation", 3), ("connection", 3)):
            await page.do("click", f"#tab-{tab}")
            assert await page.value(f"{names}.length") == count
            assert await page.value(cut) == []
        await page.value("document.querySelector('#panel-connection label').style.width = '2rem'")
        assert await page.value(cut) == ["Transport"], "a name that a control covers is found"


async def test_nothing_moves_while_an_answer_is_spoken_or_after_it(server: Running, browser: Chromium) -> None:
    """The words to come have their places, and what appears below an answer has its own."""
    for width, height in ((1440, 900), (390, 844)):
        async with browser.page(viewport={"width": width, "height": height}) as page:
            await page.open(server.http)
            await page.ask("say: the first answer")
            await page.state("ready")
            words = " ".join(f"word{n}" for n in range(40))
            await page.ask(f"say: {words}")
            await page.until("document.querySelectorAll('#captions .answer').length === 2")
            answer = "document.querySelector('#captions .answer:last-child')"
            await page.until(
                f"{answer}.querySelector('.next')?.textContent.includes('word39') && {answer}.querySelector('.now')"
            )
            during = await page.value(BOXES)
            await page.state("ready")
            await page.until("document.querySelector('.answer:last-child .meta button').checkVisibility()")
            assert await page.value(BOXES) == during
            assert await page.value("document.querySelectorAll('#captions .now, #captions .next').length") == 0


async def test_who_wants_no_motion_sees_none(server: Running, browser: Chromium) -> None:
    """The orb's shape follows a voice; with less motion wanted, only its weight and light do."""
    for wanted, moves in (("no-preference", True), ("reduce", False)):
        async with browser.page(reducedMotion=wanted, deviceScaleFactor=3) as page:
            await page.open(server.http)
            await page.ask("long 200")
            await page.state("speaking")
            radii = await page.value(EDGES)
            assert (max(radii) - min(radii) > 1) == moves, radii
            await page.do("press", "Escape", on="page.keyboard")


# How far the disc reaches from the orb's middle to the right, in pixels, in 40 frames.
EDGES = """(async () => {
  const orb = document.getElementById("orb");
  const reach = () => {
    const { data } = orb.getContext("2d").getImageData(0, orb.height / 2, orb.width, 1);
    let x = orb.width / 2;
    while (data[4 * x + 3] > 200) x++;
    return x - orb.width / 2;
  };
  const found = [];
  for (let i = 0; i < 40; i++) {
    await new Promise((resolve) => setTimeout(resolve, 25));
    found.push(reach());
  }
  return found;
})()"""


async def test_the_keyboard_is_enough(page: Page) -> None:
    await page.do("focus", "#question")
    for key in "say: by keys alone":
        await page.do("press", key if key != " " else "Space", on="page.keyboard")
    await page.do("press", "Enter", on="page.keyboard")
    await page.shows("#captions .answer", "by keys alone")
    await page.state("ready")
    await page.do("focus", "#open-menu")
    focused = []
    for _ in range(12):
        await page.do("press", "Tab", on="page.keyboard")
        focused.append(await page.value("document.activeElement.id || document.activeElement.textContent.trim()"))
        assert await page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert focused[0] == "scroll"
    assert focused[2] == "Copy"  # below the answer, after its sound
    assert focused[3:8] == ["talk", "open-microphones", "camera", "open-cameras", "screen"]
    assert focused[8:] == ["question", "picture", "send", "end"]  # Stop has nothing to do
    await page.do("focus", "#open-settings")
    await page.do("press", "Enter", on="page.keyboard")
    await page.until("document.getElementById('settings').open")
    await page.do("press", "Escape", on="page.keyboard")
    await page.until("!document.getElementById('settings').open")
    assert await page.value("document.activeElement.id") == "open-settings"


async def test_stopping_by_button_leaves_the_keyboard_somewhere(page: Page) -> None:
    await page.ask("long 200")
    await page.state("speaking")
    await page.do("press", "#stop", "Enter")
    await page.state("ready")
    assert await page.value("document.activeElement.id") == "question"


async def test_a_screen_reader_is_told(page: Page) -> None:
    await a_conversation(page)
    roles = "['state', 'captions', 'notice'].map((id) => document.getElementById(id).getAttribute('role'))"
    assert await page.value(roles) == ["status", "log", "alert"]
    assert await page.value("document.getElementById('captions').getAttribute('aria-live')") == "polite"
    await page.until("!document.querySelector('#captions [aria-busy]')")
    await page.ask("slow")
    await page.state("ready")
    assert await page.value("document.querySelectorAll('#captions .answer').length") >= 2
