"""Measure live captions: from the start of speech to the first words of the transcript, over the WebSocket.

    python -m benchmarks.captions [--config nano] [--recordings 20]

Each recording of tests/data/spoken is spoken in real time by a session of its own, one after the other, to a server of
that configuration. *First words* is when the first ``conversation.item.input_audio_transcription.delta`` arrives,
counted from the 20 ms of audio that contain the first sound. *Before the end* counts the recordings whose first words
arrive before their last sound. An ASR model that hears only whole turns has none.

Run it on an idle machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import numpy as np

from app.client import Client, connect
from app.client.events import Other
from app.commands.deployment import path_of
from benchmarks.pauses_at_once import SILENCE_S, padded
from benchmarks.program import parser, spread
from benchmarks.turns import serving
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ, load_config
from engine.audio.resampler import resample
from engine.core import Pcm

SPOKEN = Path(__file__).parents[1] / "tests" / "data" / "spoken"
DELTA = "conversation.item.input_audio_transcription.delta"
PIECE_S = 0.02
DETECTION = {"type": "server_vad", "create_response": False}
SETTINGS = {"input": {"transcription": {"model": "whisper-1"}, "turn_detection": DETECTION}}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("-c", "--config", default="nano", help="a YAML file, or a name in configs/")
    options.add_argument("--recordings", type=int, default=20)
    asked = options.parse_args()
    paths = sorted(SPOKEN.glob("*.ogg"))[: asked.recordings]
    found = asyncio.run(measure(asked.config, paths))
    heard = [first_ms for _, first_ms in found if first_ms is not None]
    before = sum(first_ms is not None and first_ms < spoken_ms for spoken_ms, first_ms in found)
    print(f"first words, p50 / p95: {spread(heard)} ms ({len(heard)} of {len(paths)} recordings)")
    print(f"before the end of the speech: {before} of {len(paths)}")
    print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


async def measure(config: str, paths: list[Path]) -> list[tuple[float, float | None]]:
    """Return for each recording the length of its speech, and when its first words arrive, in ms."""
    found: list[tuple[float, float | None]] = []
    async with serving(load_config(path_of(config))) as (_, url):
        for path in paths:
            wave, start_s, end_s = recording(path)
            async with connect(url, eagerness=None) as client:
                await client.configure(audio=SETTINGS)
                found.append((1_000 * (end_s - start_s), await first_words_ms(client, wave, start_s)))
    return found


def recording(path: Path) -> tuple[Pcm, float, float]:
    """Return a recording with silence around it at SPEAKER_RATE_HZ, and the start and end of its speech in it."""
    pcm = padded(path)
    level = np.abs(pcm.astype(np.int32))
    loud = np.flatnonzero(level > 0.05 * level.max()) / MIC_RATE_HZ
    return resample(pcm, MIC_RATE_HZ, SPEAKER_RATE_HZ), float(loud[0]), float(loud[-1])


async def first_words_ms(client: Client, wave: Pcm, start_s: float) -> float | None:
    """Speak a recording. Return when its first words arrive, or None if none do."""
    events = client.events()
    began_s = time.monotonic() + (int(start_s / PIECE_S) + 1) * PIECE_S
    speaking = asyncio.create_task(client.speak(wave), name="speak")
    try:
        async with asyncio.timeout(len(wave) / SPEAKER_RATE_HZ + SILENCE_S):
            async for event in events:
                if isinstance(event, Other) and event.type == DELTA:
                    return 1_000 * (time.monotonic() - began_s)
    except TimeoutError:
        pass
    finally:
        speaking.cancel()
        await asyncio.wait([speaking])
    return None


if __name__ == "__main__":
    main()
