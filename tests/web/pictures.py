"""Take a picture of each state of the page, at three sizes and in both themes, for people to look at.

    python -m tests.web.pictures FOLDER [STATE…]

The built-in model answers where its own words are shown, and the scripted model where a state must last.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from app.commands.deployment import deployment
from app.http.qr_code import QUIET, qr_code, svg_path
from engine import EngineSpec
from tests.app.rig import LoudnessVad, keys_file, running, script_spec
from tests.web import browser as browser_module
from tests.web.browser import Chromium, Page, browsing
from tests.web.test_states import IN_LINE, STALL, show
from tests.web.test_trouble import relay

FINGERS = {"isMobile": True, "hasTouch": True}
SIZES: dict[str, tuple[tuple[int, int], dict[str, bool]]] = {
    "desktop": ((1440, 900), {}),
    "phone": ((390, 844), FINGERS),
    "low": ((844, 390), FINGERS),
}
"""The window of each size, and how its user points."""

THEMES = ("light", "dark")

STORY = "Once, in a harbour town, a lamp keeper counted the ships each night. " * 12
LIST = "Three ideas for **Sunday**:¶¶1. Walk along the river¶2. Bake bread with *rye*¶3. Call an old friend¶¶"
TABLE = "| Day | Weather |¶|---|---|¶| Saturday | Rain, then sun |¶| Sunday | Clear, 21 °C |"
TIMER = 'tool set_timer {"minutes": 10, "label": "tea"}'
REPLIES = {
    "What could we do on Sunday?": f"say: {LIST}{TABLE}",
    "Set a timer for ten minutes, please.": TIMER,
    "Tell me a story.": f"say: {STORY.strip()}",
    "What is on my desk?": "say: I see a cup, a notebook and two pens.",
}
"""The scripted model's command for each question."""

SCRIPTED = f"""
window.WebSocket = class extends WebSocket {{
  constructor(...where) {{
    super(...where);
    this.addEventListener("message", (message) =>
      Object.defineProperty(message, "data", {{ value: message.data.replaceAll("¶", "\\\\n") }}));
  }}
  send(text) {{
    for (const [said, command] of Object.entries({json.dumps(REPLIES)}))
      text = text.replace(JSON.stringify(said), () => JSON.stringify(command));
    super.send(text);
  }}
}};
"""
"""Sends the command in the place of each question, and breaks the lines of the answers at ¶."""

FACTS = {"name": "Ann", "favourite colour": "a very rare teal", "allergy": "No nuts, and no sesame either."}

STORY_ASKED = "Tell me a story."
SLOWLY = "window.requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 100);"
"""Ten frames a second suffice, so that a busy machine spends its time on the pictures."""

DENIED = "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('no', 'NotAllowedError'); }"

URL = "http://192.168.1.20:8000/"
CODE = qr_code(URL)
ADDRESS = {"url": URL, "size": len(CODE) + 2 * QUIET, "path": svg_path(CODE)}
PHONE = f"""{{
  const ask = window.fetch;
  const known = () => Promise.resolve(Response.json({json.dumps(ADDRESS)}));
  window.fetch = (...asked) => (String(asked[0]).includes("/phone?") ? known() : ask(...asked));
}}"""
"""The server has an address that a phone reaches."""

States = AsyncGenerator[str]


async def idle_states(page: Page, url: str) -> States:
    """The built-in model before and in a conversation."""
    await page.open(url)
    await page.until("document.querySelectorAll('#examples button').length > 1")
    yield "idle"
    for name in ("model", "help", "menu"):
        await page.value(f"document.getElementById('{name}').showPopover()")
        yield f"{name}_open"
        await page.value(f"document.getElementById('{name}').hidePopover()")
    await page.do("click", "#open-settings")
    yield "settings"
    await page.do("click", "#tab-connection")
    yield "settings_connection"
    await page.do("click", "#open-doctor")
    await page.until("document.querySelectorAll('#steps [data-found]').length === 6")
    yield "connection_check"
    await page.do("press", "Escape", on="page.keyboard")


async def conversation_states(page: Page, url: str) -> States:
    """A conversation with the scripted model."""
    await page.before(SCRIPTED)
    await page.before(PHONE)
    await page.open(url)
    await page.ask("What could we do on Sunday?")
    await page.shows("#captions .answer", "Clear")
    await page.state("ready")
    await page.ask("Set a timer for ten minutes, please.")
    await page.shows("#captions .answer:last-child", "The tool says")
    await page.state("ready")
    yield "script"
    await page.do("click", "#camera")
    await page.until("document.querySelector('#preview video')?.videoWidth > 0")
    await page.ask(STORY_ASKED)
    await page.state("speaking")
    yield "speaking_with_camera"
    await page.do("click", "#stop")
    await page.do("click", "#camera")
    await page.state("ready")
    yield "interrupted"
    await page.do("click", "#open-inspector")
    for panel in ("timing", "events", "tools", "session"):
        await page.do("click", f"#tab-{panel}")
        if panel == "events":
            await page.do("click", "#events li:last-child button")
        yield f"inspector_{panel}"
    await page.do("click", "#close-inspector")
    await page.value("document.getElementById('microphone-menu').showPopover()")
    yield "microphone_menu"
    await page.value("document.getElementById('microphone-menu').hidePopover()")
    await page.do("click", "#open-menu")
    if await page.value("document.getElementById('open-phone').checkVisibility()"):  # not on a phone
        await page.do("click", "#open-phone")
        yield "phone_code"


async def call_states(page: Page, url: str) -> States:
    """A call, before its first words and while the user speaks."""
    await page.open(url)
    await page.start()
    yield "listening"
    await page.value("speak(600)")
    await page.state("hearing")
    yield "hearing"


async def memory_states(page: Page, url: str) -> States:
    """The facts that the server remembers."""
    await page.open(url)
    await page.shows("#abilities", "Hears speech")
    await page.do("click", "#open-inspector")
    await page.do("click", "#tab-session")
    await page.value("document.getElementById('memory').scrollIntoView({ block: 'nearest' })")
    yield "memory_off"
    await page.do("check", "#remembers")
    for name, value in FACTS.items():
        await page.ask(f"tool remember {json.dumps({'name': name, 'value': value})}")
        await page.shows("#facts", value)
    await page.value("document.getElementById('memory').scrollIntoView({ block: 'nearest' })")
    yield "memory"


async def trouble_states(page: Page, url: str) -> States:
    """What stands in the way of a conversation."""
    await page.before(STALL)
    await page.before(SCRIPTED)
    await page.open(url)
    await page.value(f"void ({DENIED})")
    await page.do("click", "#start")
    await page.shows("#notice", "blocked")
    yield "microphone_denied"
    await page.do("click", "#end")
    await page.do("click", "#dismiss")
    await page.value(f"void (window.stall = {IN_LINE})")
    await page.ask(STORY_ASKED)
    await page.state("waiting")
    yield "waiting"
    await page.do("click", "#end")


async def lost_states(page: Page, url: str) -> States:
    """A server that goes away."""
    await page.before(SCRIPTED)
    async with relay(int(url.rpartition(":")[2])) as port:
        await page.open(f"http://127.0.0.1:{port}")
        await page.ask("What is on my desk?")
        await page.state("ready")
    await page.shows("#notice", "No server answers")
    await page.ask(STORY_ASKED)
    yield "lost"


async def key_states(page: Page, url: str) -> States:
    """A server with keys."""
    await page.open(url)
    await page.ask("Hello")
    await page.until("document.getElementById('key-dialog').open")
    yield "key"


def with_key(folder: Path) -> EngineSpec:
    return script_spec(keys_file=keys_file(folder, "sesame-sesame-sesame"))


PARTS: tuple[tuple[Callable[[Page, str], States], Callable[[Path], EngineSpec]], ...] = (
    (conversation_states, lambda _: script_spec()),
    (trouble_states, lambda _: script_spec()),
    (lost_states, lambda _: script_spec()),
    (key_states, with_key),
    (call_states, lambda _: script_spec()),
    (memory_states, lambda folder: script_spec(memory={"path": str(folder / "facts.sqlite")})),
    (idle_states, lambda _: deployment("nano")),
)


async def taken(page: Page, folder: Path, state: str, size: str) -> None:
    """Take the pictures of one state."""
    for theme in THEMES:
        await show(page, SIZES[size][0], theme)
        await asyncio.sleep(0.2)  # the page draws its orb anew
        await page.do("screenshot", {"path": str(folder / f"{state}_{size}_{theme}.png")})


async def pictures(folder: Path, wanted: set[str]) -> None:
    async with browsing() as browser:
        for states, spec in PARTS:
            await part(browser, states, spec(folder), folder, wanted)


async def part(
    browser: Chromium, states: Callable[[Page, str], States], spec: EngineSpec, folder: Path, wanted: set[str]
) -> None:
    async with running(spec, ready_s=300, vad=LoudnessVad) as server:
        for size, (viewport, pointer) in SIZES.items():
            async with browser.page(locale="en", **pointer) as page:
                await page.do("setDefaultTimeout", 1000 * browser_module.TIMEOUT_S)
                await page.before(SLOWLY)
                await show(page, viewport)
                async for state in states(page, server.http):
                    if not wanted or state in wanted:
                        await taken(page, folder, state, size)


if __name__ == "__main__":
    browser_module.TIMEOUT_S = 180
    browser_module.PATIENCE_MS = 170_000
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(pictures(folder, set(sys.argv[2:])))
