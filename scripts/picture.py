"""Record the README's animation: a conversation with the starter on its web page.

    python -m scripts.picture [FILE]

Starts a server and opens its page in Chromium, whose microphone plays questions that Kokoro's voice asks. Frames keep
their timing, so the animation shows the speed of this machine. Needs what `make real` needs, including its weights,
Chromium and Node. Check the result before committing it.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from benchmarks.spoken_questions import speech, voice_alone
from engine import SPEAKER_RATE_HZ, Engine, EngineSpec, load_config
from engine.core import Wave
from tests.app.rig import running
from tests.real.weights import CACHE
from tests.web.browser import UNPROCESSED, Page, browsing, written

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "conversation.webp"
QUESTIONS = (("What is seventeen plus twenty-five?", 4.2), ("Set a timer for ten minutes.", 3.4))
"""The questions, each with the seconds of silence after it."""
BEFORE_S = 0.4
SIZE = {"width": 900, "height": 560}
SCALE = 1
LEAST_MS = 80
LAST_MS = 1500
"""Duration of the last frame before the animation repeats."""
QUALITY = 60


def main(arguments: list[str]) -> int:
    """Record the animation and report its size."""
    file = Path(arguments[0]) if arguments else FILE
    with tempfile.TemporaryDirectory() as folder:
        shots = asyncio.run(recorded(Path(folder)))
    film = merged(shots)
    save(film, file)
    seconds = sum(ms for _, ms in film) / 1000
    print(f"{file}: {len(film)} pictures, {seconds:.1f} s, {file.stat().st_size / 1000:.0f} kB")
    return 0


async def said(folder: Path) -> tuple[Path, float]:
    """Write the microphone audio, and return its path and its length in seconds."""
    pieces = [silence(BEFORE_S)]
    async with Engine(voice_alone(CACHE / "kokoro-int8")) as engine:
        for question, silence_s in QUESTIONS:
            pieces += [await speech(engine, question), silence(silence_s)]
    samples = np.concatenate(pieces)
    room = silence(60)  # the browser plays the file once, and would lose the microphone at its end
    path = written(folder / "user.wav", np.concatenate([samples, room]), SPEAKER_RATE_HZ)
    return path, len(samples) / SPEAKER_RATE_HZ


def silence(seconds: float) -> Wave:
    return np.zeros(round(seconds * SPEAKER_RATE_HZ), np.float32)


def starter(folder: Path) -> EngineSpec:
    """Return the starter's configuration with the weights of the suite `real`."""
    tree = yaml.safe_load((ROOT / "configs" / "starter.yaml").read_text(encoding="utf-8"))
    for part in (tree["stages"][0], tree["stages"][1]["models"][1]):
        part["weights"] = str(CACHE / part["weights"])
    file = folder / "starter.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return load_config(file)


async def recorded(folder: Path) -> list[tuple[bytes, float]]:
    """Return screenshots (PNG) of the page with their times in seconds."""
    microphone, seconds = await said(folder)
    async with (
        running(starter(folder)) as server,
        browsing(microphone) as browser,
        browser.page(locale="en", colorScheme="light", viewport=SIZE, deviceScaleFactor=SCALE) as page,
    ):
        await page.open(server.http, microphone=UNPROCESSED)
        await page.start()
        return await filmed(page, folder / "shot.png", seconds)


async def filmed(page: Page, file: Path, seconds: float) -> list[tuple[bytes, float]]:
    """Take screenshots for the given time, as fast as the browser can, but at most one every LEAST_MS."""
    shots: list[tuple[bytes, float]] = []
    begun_s = time.monotonic()
    while (now_s := time.monotonic() - begun_s) < seconds:
        await page.do("screenshot", {"path": str(file), "animations": "allow"})
        shots.append((await asyncio.to_thread(file.read_bytes), now_s))
        await asyncio.sleep(max(0.0, begun_s + now_s + LEAST_MS / 1000 - time.monotonic()))
    return shots


def merged(shots: list[tuple[bytes, float]]) -> list[tuple[Image.Image, int]]:
    """Return the frames with their durations in ms; identical consecutive frames are merged."""
    film: list[tuple[Image.Image, int]] = []
    ends = [*(at for _, at in shots[1:]), None]
    before = b""
    for (data, at), end in zip(shots, ends, strict=True):
        ms = LAST_MS if end is None else round(1000 * (end - at))
        image = Image.open(io.BytesIO(data)).convert("RGB")
        if film and image.tobytes() == before:
            film[-1] = (film[-1][0], film[-1][1] + ms)
            continue
        film.append((image, ms))
        before = image.tobytes()
    return film


def save(film: list[tuple[Image.Image, int]], file: Path) -> None:
    (first, _), *rest = film
    durations = [ms for _, ms in film]
    more = [image for image, _ in rest]
    first.save(file, save_all=True, append_images=more, duration=durations, loop=0, quality=QUALITY, method=6)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
