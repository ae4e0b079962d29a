"""The README's moving picture: a conversation with the built-in model, recorded in its page as it goes on.

    python -m scripts.picture [FILE]

A server starts, Chromium opens its page, and its microphone plays two questions from tests/data/spoken. Every picture
keeps the time at which it was taken, so the film is as quick as the answers were on this machine. Needs what
`make test` needs, Chromium and Node included. Look at what it has made before you commit it.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

from engine import load_config
from tests.app.rig import running
from tests.web.browser import UNPROCESSED, Page, browsing, written

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "conversation.webp"
SPOKEN = ROOT / "tests" / "data" / "spoken"
QUESTIONS = (("in_162.ogg", 2.8), ("in_123.ogg", 4.0))
"""What the user says, and the seconds of silence behind it."""
BEFORE_S = 0.4
SIZE = {"width": 760, "height": 400}
SCALE = 1.5
LEAST_MS = 80
LAST_MS = 1500
"""The last picture stays so long before the film begins again."""
QUALITY = 60


def main(arguments: list[str]) -> int:
    """Record, and say what was made."""
    file = Path(arguments[0]) if arguments else FILE
    with tempfile.TemporaryDirectory() as folder:
        shots = asyncio.run(recorded(Path(folder)))
    film = merged(shots)
    save(film, file)
    seconds = sum(ms for _, ms in film) / 1000
    print(f"{file}: {len(film)} pictures, {seconds:.1f} s, {file.stat().st_size / 1000:.0f} kB")
    return 0


def said(folder: Path) -> tuple[Path, float]:
    """The microphone's sound, and its seconds."""
    pieces, rate_hz = [], 0
    for name, silence_s in QUESTIONS:
        voice, rate_hz = soundfile.read(SPOKEN / name, dtype="float32")
        pieces += [voice, np.zeros(int(silence_s * rate_hz))]
    samples = np.concatenate([np.zeros(int(BEFORE_S * rate_hz)), *pieces])
    silence = np.zeros(60 * rate_hz)  # the browser plays the file once, and its end would be a lost microphone
    return written(folder / "user.wav", np.concatenate([samples, silence]), rate_hz), len(samples) / rate_hz


async def recorded(folder: Path) -> list[tuple[bytes, float]]:
    """PNGs of the page, each with the second at which it was taken."""
    microphone, seconds = said(folder)
    async with (
        running(load_config(ROOT / "configs" / "nano.yaml")) as server,
        browsing(microphone) as browser,
        browser.page(locale="en", colorScheme="light", viewport=SIZE, deviceScaleFactor=SCALE) as page,
    ):
        await page.open(server.http, microphone=UNPROCESSED)
        await page.start()
        return await filmed(page, folder / "shot.png", seconds)


async def filmed(page: Page, file: Path, seconds: float) -> list[tuple[bytes, float]]:
    """Take pictures for so long, as quickly as the browser gives them, but not more often than every LEAST_MS."""
    shots: list[tuple[bytes, float]] = []
    begun_s = time.monotonic()
    while (now_s := time.monotonic() - begun_s) < seconds:
        await page.do("screenshot", {"path": str(file), "animations": "allow"})
        shots.append((await asyncio.to_thread(file.read_bytes), now_s))
        await asyncio.sleep(max(0.0, begun_s + now_s + LEAST_MS / 1000 - time.monotonic()))
    return shots


def merged(shots: list[tuple[bytes, float]]) -> list[tuple[Image.Image, int]]:
    """The pictures with their milliseconds; those that are equal to the one before lengthen it."""
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
