"""Words are shown as they are heard: what the page plays, recorded in the page, against when its captions are painted.

Each word of the scripted family is a tone. An AudioWorklet hears when each begins, by the clock of the loudspeaker's
output; a word counts as shown in the frame in which it is painted.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import pairwise

import pytest
import pytest_asyncio

from engine import load_config
from tests.app.rig import ROOT, running
from tests.web.browser import Chromium, Page

pytestmark = [
    pytest.mark.media,
    pytest.mark.chromium,
    pytest.mark.node,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

WORDS = 40
ROUNDS = 3

QUESTION = "say: " + "do ti " * (WORDS // 2)
"""Its answer's words are tones of 262 and 466 Hz in turns: where they change, a word begins, whatever is missing."""

EAR = """
registerProcessor("ear", class extends AudioWorkletProcessor {
  last = 0;
  rose = 0;
  peak = 0;
  high = null; // the tone that sounds
  other = []; // when periods of the other one began, in a row
  process([[samples]]) {
    for (const [i, x] of (samples ?? []).entries()) {
      this.peak = Math.max(this.peak, x);
      if (this.last < 0 && x >= 0) this.rise(currentTime + i / sampleRate);
      this.last = x;
    }
    return true;
  }
  rise(at) {
    const [begun, peak] = [this.rose, this.peak];
    this.rose = at;
    this.peak = 0;
    const period = at - begun;
    if (peak < 0.05 || period > 0.006) return; // silence, or a gap
    const high = period < 0.0028;
    this.other = high === this.high ? [] : [...this.other, begun];
    if (this.other.length < 6) return; // a break in the sound, and no word
    this.port.postMessage(this.other[0]);
    this.high = high;
    this.other = [];
  }
});
"""

# From now on `heard` are the times at which a tone began to be heard, and `shown` those at which a word was painted.
WATCH = """async (ear) => {
  window.heard = [];
  window.shown = [];
  const voice = document.getElementById("voice");
  while (!voice.srcObject) await new Promise((r) => setTimeout(r, 10));
  const context = new AudioContext({ latencyHint: "interactive" });
  await context.resume();
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([ear], { type: "text/javascript" })));
  const node = new AudioWorkletNode(context, "ear", { channelCount: 1, channelCountMode: "explicit" });
  node.port.onmessage = ({ data }) => {
    const { contextTime, performanceTime } = context.getOutputTimestamp();
    window.heard.push(performanceTime + (data - contextTime) * 1000);
  };
  context.createMediaStreamSource(voice.srcObject).connect(node).connect(context.destination);
  let words = 0;
  new MutationObserver(() => {
    const answer = document.querySelector("#captions .answer:last-of-type p");
    const coming = answer?.querySelector(".next")?.textContent ?? "";
    const text = (answer?.textContent ?? "").slice(0, -coming.length || undefined);
    const now = text.split(/\\s+/).filter(Boolean).length;
    if (now < words) words = 0; // another answer
    const more = Array(Math.max(0, now - words));
    words = now;
    requestAnimationFrame((at) => window.shown.push(...more.fill(at)));
  }).observe(document.getElementById("captions"), { childList: true, characterData: true, subtree: true });
}"""

# The page does not get what it asks for.
UNALIGNED = """
for (const { prototype } of [WebSocket, RTCDataChannel]) {
  const send = prototype.send;
  prototype.send = function (text) { send.call(this, text.replace('"alignment":true', '"alignment":false')); };
}
"""


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _plain_loop() -> None:
    """asyncio's debug mode costs milliseconds a packet, and a call's sound then comes late."""
    asyncio.get_running_loop().set_debug(False)


async def lags_ms(browser: Chromium, transport: str, *, aligned: bool) -> list[float]:
    """How long after a word is heard it is shown, of every word of some answers."""
    listening = {"host": "127.0.0.1", "port": 0}
    spec = replace(load_config(ROOT / "configs" / "script.yaml"), launcher="inline", server=listening)
    async with running(spec) as server, browser.page(bypassCSP=True) as page:
        if not aligned:
            await page.before(UNALIGNED)
        await page.open(server.http, transport=transport)
        await page.ask("say: ti")
        await page.state("ready")
        await page.value(f"({WATCH})({json.dumps(EAR)})")
        lags = [lag for _ in range(ROUNDS) for lag in await one_answer(page)]
        await page.do("click", "#end")
        await server.empty()
    return lags


async def one_answer(page: Page) -> list[float]:
    await page.value("void (heard.length = shown.length = 0)")
    await page.ask(QUESTION)
    await page.state("speaking")
    await page.state("ready")
    await asyncio.sleep(0.5)  # the ear's messages, and the last frame
    heard, shown = await page.value("heard"), await page.value("shown")
    assert (len(heard), len(shown)) == (WORDS, WORDS), [round(after - before) for before, after in pairwise(heard)]
    return [at - then for at, then in zip(shown, heard, strict=True)]


@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
async def test_a_word_is_shown_when_it_is_heard(browser: Chromium, transport: str) -> None:
    lags = sorted(await lags_ms(browser, transport, aligned=True))
    off = sorted(map(abs, lags))
    p95 = off[round(0.95 * (len(off) - 1))]
    print(f"\nword shown - word heard over {transport}: {lags[len(lags) // 2]:.0f} ms median,", end=" ")
    print(f"{lags[0]:.0f} to {lags[-1]:.0f}; off by {p95:.0f} ms at p95 of {len(off)} words")
    assert p95 <= 150


@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
async def test_without_the_servers_marks_words_are_early(browser: Chromium, transport: str) -> None:
    off = sorted(map(abs, await lags_ms(browser, transport, aligned=False)))
    assert off[round(0.95 * (len(off) - 1))] > 500
