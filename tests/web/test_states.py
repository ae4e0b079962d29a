"""Every state of the page, on every kind of screen: axe-core finds nothing, and no text lies over another."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.app.rig import Running
from tests.web.browser import MODULES, Chromium, Page

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

AXE = MODULES / "axe-core" / "axe.min.js"

# While `window.stall` is true a socket opens and says nothing but what `window.stall` holds.
STALL = """
window.WebSocket = class extends WebSocket {
  constructor(...where) {
    super(...where);
    window.newest = this;
    this.addEventListener("message", (message) => window.deaf && message.stopImmediatePropagation());
    if (!window.stall) return;
    const { stall } = window;
    this.addEventListener("message", (message) => message.stopImmediatePropagation());
    this.addEventListener("open", () => stall !== true && this.onmessage({ data: stall }));
  }
};
"""
SEEN = """addEventListener("DOMContentLoaded", () => {
  const state = document.getElementById("state");
  window.seen = new Set([state.dataset.state]);
  new MutationObserver(() => window.seen.add(state.dataset.state)).observe(state, { attributes: true });
})"""
"""Every state that the page was in."""

PASTE = """(async () => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 40, height: 30 });
  const data = new DataTransfer();
  const picture = await new Promise((made) => canvas.toBlob(made));
  data.items.add(new File([picture], "p.png", { type: "image/png" }));
  document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data }));
})()"""
REACHED = """{
  const ask = window.fetch;
  const phone = { url: "http://192.168.1.20:8000/", size: 9, path: "M4 4h1v1h-1z" };
  const known = () => Promise.resolve(Response.json(phone));
  window.fetch = (...asked) => (String(asked[0]).includes("/phone?") ? known() : ask(...asked));
}"""
"""The server has an address that a phone reaches."""

IN_LINE = '\'{"type": "parley.queue.updated", "position": 3}\''

# The texts that lie over another one: what of each can be seen (not scrolled or clipped away, nothing opaque above it),
# the middle of its lines, so that two lines of one paragraph are apart. A field is a text from edge to edge.
OVERLAPS = """(() => {
  const top = document.querySelector("dialog[open], :popover-open") ?? document.body;
  const clipped = (box, node) => {
    let { left, top, right, bottom } = box;
    for (let one = node; one && one !== document.documentElement; one = one.parentElement) {
      const style = getComputedStyle(one);
      if (style.overflowX === "visible" && style.overflowY === "visible") continue;
      const edge = one.getBoundingClientRect();
      [left, right] = [Math.max(left, edge.left), Math.min(right, edge.right)];
      [top, bottom] = [Math.max(top, edge.top), Math.min(bottom, edge.bottom)];
    }
    [left, right] = [Math.max(left, 0), Math.min(right, innerWidth)];
    [top, bottom] = [Math.max(top, 0), Math.min(bottom, innerHeight)];
    return right - left > 1 && bottom - top > 1 ? { left, top, right, bottom } : null;
  };
  const found = [];
  const add = (text, node, boxes) => {
    for (const { left, top, right, bottom } of boxes) {
      const inset = (bottom - top) / 4;
      const box = clipped({ left, right, top: top + inset, bottom: bottom - inset }, node);
      if (box !== null) found.push({ text: text.trim().slice(0, 40), node, box });
    }
  };
  const texts = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { data, parentElement: node } = texts.currentNode;
    if (!data.trim() || !node.checkVisibility() || node.closest(".unseen, script, select, textarea")) continue;
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    add(data, node, range.getClientRects());
  }
  for (const node of top.querySelectorAll("input:not(.unseen, [type=radio]), select, textarea")) {
    if (node.checkVisibility()) add(node.id, node, node.getClientRects());
  }
  const seen = (one, x, y) => {
    for (const node of document.elementsFromPoint(x, y)) {
      if (node === one || node.contains(one)) return true;
      if (getComputedStyle(node).backgroundColor.startsWith("rgb(")) return false;
    }
    return false;
  };
  const pairs = [];
  for (const [i, one] of found.entries()) for (const other of found.slice(i + 1)) {
    if (one.node === other.node) continue;
    const [a, b] = [one.box, other.box];
    const [left, right] = [Math.max(a.left, b.left), Math.min(a.right, b.right)];
    const [top, bottom] = [Math.max(a.top, b.top), Math.min(a.bottom, b.bottom)];
    if (right - left < 2 || bottom - top < 2) continue;
    const [x, y] = [(left + right) / 2, (top + bottom) / 2];
    if (seen(one.node, x, y) && seen(other.node, x, y)) pairs.push(`${one.text} | ${other.text}`);
  }
  return pairs;
})()"""

# What opens beside the orb and reaches beyond the window.
BEYOND = """[...document.querySelectorAll("#preview, .sheet, dialog, #ask")].filter((one) => {
  const { top, bottom } = one.getBoundingClientRect();
  return one.checkVisibility() && (top < 0 || bottom > innerHeight);
}).map((one) => one.id || one.className)"""

TYPES = (MODULES.parent / "src" / "voice_events.ts").read_text(encoding="utf-8")
STATES = set(re.findall(r'\| "(\w+)"', TYPES.partition("type VoiceState")[2].partition("export")[0]))
"""Every state that a conversation may be in."""

SCREENS: dict[str, dict[str, Any]] = {
    "light": {"viewport": (1280, 800)},
    "dark": {"viewport": (1280, 800), "colorScheme": "dark"},
    "at 200 percent": {"viewport": (640, 400)},
}
"""How one page is shown in turn: its states are led through once, which takes longer than looking at them."""
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 640}, "isMobile": True, "hasTouch": True}
SIZES = [(320, 568), (360, 640), (640, 360), (640, 400), (720, 450), (844, 390), (1280, 800)]


async def conversation_states(page: Page, url: str) -> AsyncGenerator[str]:
    """Lead a page through the states of a conversation; the name of each while it holds."""
    await page.before(STALL)
    await page.open(url)
    await page.shows("#examples", "say:")
    yield "idle"
    for name, stall in (("connecting", "true"), ("waiting", IN_LINE)):
        await page.value(f"void (window.stall = {stall})")
        await page.ask("say: so much for that")
        await page.state(name)
        yield name
        await page.do("click", "#end")
        await page.state("idle")
    await page.value("void (window.stall = false)")
    await page.start()
    yield "listening"
    await page.do("click", "#talk")
    await page.state("muted")
    yield "muted"
    await page.do("click", "#talk")
    await page.value("speak(1.0)")
    await page.state("hearing")
    yield "hearing"
    await page.shows("#captions .answer", "I heard")
    await page.do("click", "#camera")
    await page.until("document.querySelector('#preview video')?.videoWidth > 0")
    await page.ask("long 200")
    await page.state("speaking")
    yield "speaking, with the camera on"
    await page.do("click", "#camera")
    await page.do("click", "#end")
    await page.value(PASTE)
    await page.until("document.querySelector('#attached').checkVisibility()")
    yield "a picture attached"
    await page.do("click", "#detach")
    await page.ask("fail")
    await page.shows("#notice", "The answer failed")
    yield "error"
    await page.do("click", "#dismiss")
    await page.value("void (window.deaf = true)")
    await page.ask("say: what nobody hears")
    await page.state("thinking")
    yield "thinking"
    await page.value("void (window.stall = true, window.newest.close())")
    await page.state("lost")
    yield "lost"
    await page.value("void (window.deaf = window.stall = false)")
    await page.do("click", "#end")
    await page.state("idle")
    yield "idle, with words"


async def opened_states(page: Page, url: str) -> AsyncGenerator[str]:
    """Open each panel, menu and dialog; the name of each while it is open."""
    await page.before(REACHED)
    await page.open(url)
    await page.ask('tool set_timer {"minutes": 10}')
    await page.shows("#captions .answer", "The tool says")
    await page.state("ready")
    for panel in ("timing", "events", "tools", "session"):
        await page.value("document.getElementById('inspector').hidden && document.getElementById('latency').click()")
        await page.do("click", f"#tab-{panel}")
        yield f"{panel} open"
    await page.do("click", "#close-inspector")
    for name, menu in (("menu", "menu"), ("model", "model"), ("cameras", "camera-menu")):
        await page.do("click", f"#open-{name}")
        await page.until(f"document.getElementById('{menu}').matches(':popover-open')")
        yield f"{menu} open"
        await page.do("press", "Escape", on="page.keyboard")
    await page.value("document.getElementById('phone').showModal()")
    yield "phone open"
    await page.do("press", "Escape", on="page.keyboard")
    await page.do("click", "#open-settings")
    yield "settings open"
    await page.do("click", "#tab-connection")
    await page.do("click", "#open-doctor")
    await page.until("document.querySelectorAll('#steps [data-found]').length === 6")
    yield "doctor open"
    await page.do("click", "#change-key")
    yield "key asked for"
    await page.do("press", "Escape", on="page.keyboard")
    await page.do("click", "#open-microphones")
    await page.until("document.querySelectorAll('#microphones input').length === 3")
    yield "microphone menu open"
    await page.do("check", "[value=hold]")
    await page.do("press", "Escape", on="page.keyboard")
    await page.do("focus", "#talk")
    await page.do("down", "Space", on="page.keyboard")
    await page.state("hearing")
    yield "push to talk"
    await page.do("up", "Space", on="page.keyboard")


LED = {"conversation": conversation_states, "opened": opened_states}


async def show(page: Page, viewport: tuple[int, int], colorScheme: str = "light") -> None:
    """Show the page on another screen."""
    await page.do("setViewportSize", {"width": viewport[0], "height": viewport[1]})
    await page.do("emulateMedia", {"colorScheme": colorScheme})
    await page.value("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")  # the resize


async def scanned(page: Page) -> list[str]:
    """What axe finds wrong: the rule, and where."""
    assert AXE.is_file(), "axe-core is missing (cd web && npm ci)"
    if not await page.value("'axe' in window"):
        await page.value(AXE.read_text() + ";true")
    results = await page.value("axe.run({resultTypes: ['violations']}).then(({violations}) => violations)")
    return [f"{one['impact']} {one['id']}: {[node['html'] for node in one['nodes']]}" for one in results]


@pytest.mark.timeout(300)  # some forty scans on two cores
@pytest.mark.parametrize("led", LED)
async def test_no_state_has_what_axe_finds_or_a_text_over_another(led: str, server: Running, browser: Chromium) -> None:
    found: dict[str, list[str]] = {}
    over: dict[str, list[str]] = {}
    async with browser.page() as page:
        await page.before(SEEN)
        async for state in LED[led](page, server.http):
            for name, screen in SCREENS.items():
                await show(page, **screen)
                found[f"{state}, {name}"] = await scanned(page)
            for width, height in SIZES:
                await show(page, (width, height))
                over[f"{state} at {width} x {height}"] = await page.value(OVERLAPS)
                assert await page.value("document.documentElement.scrollWidth") <= width, (state, width)
                assert await page.value(BEYOND) == [], (state, width, height)
        assert led != "conversation" or set(await page.value("[...window.seen]")) == STATES
        assert {state: wrong for state, wrong in found.items() if wrong} == {}
        assert {state: pairs for state, pairs in over.items() if pairs} == {}


async def test_what_axe_and_the_overlaps_look_for_is_found(page: Page) -> None:
    await page.value("document.getElementById('picture').removeAttribute('aria-label')")
    await page.value("document.getElementById('picture').removeAttribute('title')")
    assert any("button-name" in one for one in await scanned(page)), "a button without a name is found"
    assert await page.value(OVERLAPS) == []
    await page.value("""(() => {
      const { left, top } = document.querySelector("h1").getBoundingClientRect();
      document.body.append(Object.assign(document.createElement("p"), { textContent: "a text of another place" }));
      Object.assign(document.body.lastChild.style, { position: "fixed", left: `${left}px`, top: `${top - 10}px` });
    })()""")
    assert await page.value(OVERLAPS), "a text over another one is found"


@pytest.mark.parametrize("led", LED)
async def test_axe_finds_nothing_in_any_state_on_a_phone(led: str, server: Running, browser: Chromium) -> None:
    async with browser.page(**PHONE) as page:
        found = {state: await scanned(page) async for state in LED[led](page, server.http)}
    assert {state: wrong for state, wrong in found.items() if wrong} == {}


async def test_on_a_phone_the_orb_is_in_the_middle(server: Running, browser: Chromium) -> None:
    for width in (320, 360, 412):
        async with browser.page(**{**PHONE, "viewport": {"width": width, "height": 700}}) as page:
            await page.open(server.http)
            left, across = await page.value(
                "(({ left, width }) => [left, width])(document.getElementById('orb').getBoundingClientRect())"
            )
            assert left + across / 2 == pytest.approx(width / 2, abs=1)
