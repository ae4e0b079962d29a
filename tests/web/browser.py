"""A Chromium page as the tests see it: what it shows, what it lets be heard, which addresses it asks for.

One Chromium serves the tests of a module, each with a page of its own that knows nothing of the others'. It is
driven by playwright-core in a Node process (``browser.mjs``); this is its Python end. Knows nothing of the page's own
code: it presses, types, reads and listens as a user does.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import wave
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("browser.mjs")
MODULES = ROOT / "web" / "node_modules"
TIMEOUT_S = 60.0
PATIENCE_MS = 30_000
LINE_BYTES = 1 << 24  # a minute of what the ear heard is 300 kB
AUDIBLE = 0.01  # of full scale

UNTIL = """new Promise((resolve) => {
  const look = () => ((%s) ? resolve(true) : performance.now() > end ? resolve(false) : setTimeout(look, 10));
  const end = performance.now() + %d;
  look();
})"""

# Before the page's own code. A microphone that is silent until a test says `speak(seconds, loudness)`; every opening is
# remembered in `asked`, every track in `opened`. A camera is the browser's fake one.
MICROPHONE = """
window.asked = [];
window.opened = [];
if (navigator.mediaDevices) {
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  let tone = null;
  const make = () => {
    const context = new AudioContext();
    const pitch = new OscillatorNode(context, { frequency: 300 });
    tone = new GainNode(context, { gain: 0 });
    pitch.connect(tone);
    pitch.start();
    void context.resume();
    return tone;
  };
  window.speak = (seconds, loudness = 0.4) => {
    const now = tone.context.currentTime;
    tone.gain.cancelScheduledValues(now);
    tone.gain.setValueAtTime(loudness, now);
    tone.gain.setValueAtTime(0, now + seconds);
  };
  const device = (kind, deviceId) => ({ kind, deviceId, label: `The ${deviceId} one`, groupId: "" });
  navigator.mediaDevices.enumerateDevices = async () =>
    ["first", "second"].flatMap((name) => ["audioinput", "videoinput"].map((kind) => device(kind, name)));
  navigator.mediaDevices.getUserMedia = async (constraints) => {
    window.asked.push(structuredClone(constraints));
    if (!constraints.audio) return open({ video: true });
    const sound = tone ?? make();
    const output = sound.context.createMediaStreamDestination();
    sound.connect(output);
    window.opened.push(output.stream.getAudioTracks()[0]);
    return output.stream;
  };
}
"""

# Before the page's own code: the browser's fake microphone as it is, which plays a file.
UNPROCESSED = """{
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  const raw = {echoCancellation: false, noiseSuppression: false, autoGainControl: false};
  navigator.mediaDevices.getUserMedia = ({audio, ...rest}) =>
    open({...rest, ...(audio && {audio: {...audio, ...raw}})});
}"""

# Every event on the wire, without its audio: {at: ms, out: whether the page sent it, …the event}; `wireCall` is where
# the last call is. While
# `window.starve` is true the page gets no sound, as on a network that stalls.
WIRE = """
window.wire = [];
const note = (out, text) =>
  window.wire.push({...JSON.parse(text), at: performance.now(), out, audio: null, delta: null});
{
  const ask = window.fetch;
  window.fetch = async (...asked) => {
    const response = await ask(...asked);
    if (response.headers.has("Location")) window.wireCall = response.headers.get("Location");
    return response;
  };
  const make = RTCPeerConnection.prototype.createDataChannel;
  RTCPeerConnection.prototype.createDataChannel = function (...named) {
    const channel = make.apply(this, named);
    const send = channel.send.bind(channel);
    channel.send = (text) => (note(true, text), send(text));
    channel.addEventListener("message", (message) => note(false, message.data));
    return channel;
  };
}
window.WebSocket = class extends WebSocket {
  constructor(...where) {
    super(...where);
    this.addEventListener("message", (message) => {
      note(false, message.data);
      if (window.starve && message.data.includes("output_audio.delta")) message.stopImmediatePropagation();
    });
  }
  send(text) {
    note(true, text);
    super.send(text);
  }
};
"""

# An ear at the media element: the peak of each moment of what it plays, with the time and how much has been played by
# then. Polled: 5 ms is fine enough.
EAR = """async () => {
  const voice = document.getElementById("voice");
  while (!voice.srcObject) await new Promise((r) => setTimeout(r, 10));
  const context = new AudioContext();
  await context.resume();
  const ear = context.createAnalyser();
  ear.fftSize = 512;
  context.createMediaStreamSource(voice.srcObject).connect(ear);
  const samples = new Float32Array(ear.fftSize);
  window.ear = [];
  setInterval(() => {
    ear.getFloatTimeDomainData(samples);
    const peak = samples.reduce((peak, x) => Math.max(peak, Math.abs(x)), 0);
    window.ear.push([performance.now(), peak, 1000 * context.currentTime]);
  }, 5);
}"""


# What a page shows, and what went over the wire at last: for who reads that a test failed.
SITUATION = """`it shows ${JSON.stringify(document.getElementById("main")?.innerText ?? document.body.innerText)} at \
${Math.round(performance.now())} ms; last on the wire ${(window.wire ?? []).slice(-60).map(({ at, out, type }) =>
  `${Math.round(at)} ${out ? ">" : "<"} ${type}`).join(", ")}`"""


class Chromium:
    """A browser; ``page`` opens one in a context of its own."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def tell(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        return await self.answer()

    async def answer(self) -> Any:
        assert self._process.stdout is not None
        async with asyncio.timeout(TIMEOUT_S):
            line = await self._process.stdout.readline()
        answer = json.loads(line or '{"error": "the browser is gone"}')
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["value"]

    @asynccontextmanager
    async def page(self, **options: Any) -> AsyncGenerator[Page]:
        """A page with playwright's context options."""
        number = await self.tell(open=options or {"locale": "en"})
        try:
            yield Page(self, number)
        finally:
            await self.tell(page=number, on="close")


class Page:
    """One page. Any method of playwright's Page is reached by ``do``."""

    def __init__(self, browser: Chromium, number: int) -> None:
        self._browser, self._number = browser, number

    async def do(self, method: str, *args: Any, on: str = "page") -> Any:
        return await self._browser.tell(page=self._number, on=on, method=method, args=args)

    async def open(self, url: str, microphone: str = MICROPHONE, **choices: Any) -> None:
        """Load the page. ``choices``: what its user chose before, in ``web/src/memory.ts``'s words."""
        kept = json.dumps(json.dumps({"transport": "websocket", **choices}))
        for script in (microphone, WIRE, f"localStorage.setItem('parley.choices', {kept})"):
            await self.before(script)
        await self.do("goto", url)
        await self.state("idle")

    async def start(self) -> None:
        """Tap to talk, and wait until the server listens."""
        await self.do("click", "#talk")
        await self.state("listening")

    async def before(self, script: str) -> None:
        """Run a script in the page before its own code."""
        await self.do("addInitScript", {"content": script})

    async def state(self, *names: str) -> None:
        """Wait until the page says that it is in one of these states."""
        await self.do("waitForSelector", ", ".join(f'#state[data-state="{name}"]' for name in names))

    async def shows(self, selector: str, text: str) -> None:
        """Wait until an element holds the text."""
        await self.until(f"document.querySelector({json.dumps(selector)})?.textContent.includes({json.dumps(text)})")

    async def until(self, expression: str) -> None:
        """Wait until an expression of the page's is true. (playwright's own wait is refused by the page's policy.)"""
        if not await self.value(UNTIL % (expression, PATIENCE_MS)):
            raise AssertionError(f"never came true: {expression}; {await self.value(SITUATION)}")

    async def value(self, expression: str) -> Any:
        return await self.do("evaluate", expression)

    async def ask(self, text: str) -> None:
        await self.do("fill", "#question", text)
        await self.do("press", "#question", "Enter")

    async def listen(self) -> None:
        """From now on keep what the page plays."""
        await self.do("evaluate", f"({EAR})()")

    async def heard(self) -> list[tuple[float, float]]:
        """(ms, peak) of what was played since ``listen``."""
        return [(at, peak) for at, peak, _ in await self.value("window.ear")]

    async def sounded_ms(self, from_ms: float, to_ms: float) -> float:
        """For how long something audible was played between two times.

        By the clock of what is played: a browser that gets no processor plays nothing, and the ear sees the last moment
        again and again.
        """
        ear = [(peak, played) for at, peak, played in await self.value("window.ear") if from_ms < at <= to_ms]
        return sum(then - now for (peak, now), (_, then) in pairwise(ear) if peak > AUDIBLE)

    async def sound(self) -> None:
        """Wait until something is audible."""
        await self.until(f"window.ear.slice(-5).some(([, peak]) => peak > {AUDIBLE})")

    async def hush(self, ms: int = 200) -> None:
        """Wait until nothing was audible for so long."""
        quiet = f"(([, peak]) => peak < {AUDIBLE})"
        await self.until(f"""(() => {{
          const late = window.ear.filter(([at]) => at > performance.now() - {ms});
          return late.length > {ms} / 20 && late.every({quiet});
        }})()""")

    async def wire(self, type: str) -> list[dict[str, Any]]:
        """The events of a type that went over the wire, either way."""
        return await self.value(f"window.wire.filter((event) => event.type === {json.dumps(type)})")

    async def requests(self) -> list[str]:
        return (await self.do("", on="seen"))["requests"]

    async def errors(self) -> list[str]:
        return (await self.do("", on="seen"))["errors"]


@asynccontextmanager
async def browsing(microphone: Path | None = None) -> AsyncGenerator[Chromium]:
    """A fresh Chromium. ``microphone``: the WAV that its fake one plays, once, from each opening on."""
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    fake = None if microphone is None else str(microphone)
    arguments = json.dumps({"executable": executable, "modules": f"{MODULES.parent}/", "fakeMicrophone": fake})
    command = ("node", str(DRIVER), arguments)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES)
    try:
        browser = Chromium(process)
        await browser.answer()
        yield browser
    finally:
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(TIMEOUT_S):
            await process.wait()


def written(path: Path, samples: np.ndarray, rate_hz: int) -> Path:
    """A WAV of samples in [-1, 1]."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return path
