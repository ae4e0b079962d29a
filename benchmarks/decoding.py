"""Measure what decoding in a helper process adds to a picture, a recording and a video of 3 s.

    python -m benchmarks.decoding [--rounds 200]

Each file is decoded in this process and by a helper process, in turns. *Added* is the difference of each pair. Times in
ms, p50 / p95. The bars for a picture and a clip are 5 and 15 ms.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
import soundfile
from av.video.frame import VideoFrame
from rich.console import Console
from rich.table import Table

from app.bench.figures import percentile
from app.media.audio import decode_audio
from app.media.decoding import Decoding
from app.media.images import encode_frame, image_of
from app.media.videos import decode_video
from benchmarks.program import check_bar, parser, spread, status
from engine import MIC_RATE_HZ, CameraFeed

SECONDS = 3
LONGEST_S = 60.0
FEED = CameraFeed()
BARS_MS = {50: 5.0, 95: 15.0}


@dataclass(frozen=True, slots=True)
class File:
    """A file, and its decoding in this process and in a helper process."""

    name: str
    here: Callable[[], object]
    helped: Callable[[Decoding], Awaitable[object]]


def main() -> bool:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=200)
    rounds = options.parse_args().rounds
    times_ms = asyncio.run(measure(rounds))
    table = Table("file", "in this process", "by a helper process", "added")
    added = {name: [helped - here for here, helped in pairs] for name, pairs in times_ms.items()}
    for name, pairs in times_ms.items():
        here, helped = zip(*pairs, strict=True)
        table.add_row(name, spread(here), spread(helped), spread(added[name]))
    Console().print(table)
    met = [
        check_bar(f"{name}, p{percent}", percentile(values, percent) or 0.0, "<=", bar, "ms")
        for name, values in added.items()
        for percent, bar in BARS_MS.items()
    ]
    return all(met)


async def measure(rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the times of each file: in this process, and by a helper process."""
    decoding = Decoding()
    try:
        return {file.name: [await pair_ms(file, decoding) for _ in range(rounds + 3)][3:] for file in files()}
    finally:
        await decoding.close()


async def pair_ms(file: File, decoding: Decoding) -> tuple[float, float]:
    begun_s = time.perf_counter()
    file.here()
    between_s = time.perf_counter()
    await file.helped(decoding)
    return 1000 * (between_s - begun_s), 1000 * (time.perf_counter() - between_s)


def files() -> Iterator[File]:
    _, jpeg = encode_frame(frame(0), 1280)
    image = image_of(jpeg)
    yield File("picture, 1280 x 720", image.decode, lambda decoding: decoding.image(image, 0))
    sound = recording()
    yield File(
        "recording of 3 s",
        lambda: decode_audio(sound, LONGEST_S),
        lambda decoding: decoding.samples(io.BytesIO(sound), LONGEST_S, 0),
    )
    clip = video()
    yield File(
        "video of 3 s",
        lambda: decode_video(clip, LONGEST_S, FEED),
        lambda decoding: decoding.video(io.BytesIO(clip), LONGEST_S, FEED, 0),
    )


def frame(n: int) -> VideoFrame:
    """A gradient that moves."""
    pixels = np.add.outer(np.arange(720), np.arange(1280) + 10 * n).astype(np.uint8)
    return VideoFrame.from_ndarray(np.repeat(pixels[..., None], 3, axis=2), format="rgb24")


def recording() -> bytes:
    file = io.BytesIO()
    wave = 0.1 * np.sin(np.arange(SECONDS * MIC_RATE_HZ) / 9)
    soundfile.write(file, wave, MIC_RATE_HZ, format="WAV")
    return file.getvalue()


def video() -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream: Any = container.add_stream("mpeg4", rate=10)
        stream.width = 1280
        stream.height = 720
        stream.pix_fmt = "yuv420p"
        for n in range(SECONDS * 10):
            container.mux(stream.encode(frame(n)))
        container.mux(stream.encode(None))
    return file.getvalue()


if __name__ == "__main__":
    raise SystemExit(status(main))
