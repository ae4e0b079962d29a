"""Benchmarks of the engine alone: the time of a hand-over between stages, and the real-time factor of the TTS model.

Uses only the engine's public names.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import orjson

from app.bench.figures import Figure
from app.bench.target import BenchError
from app.ids import new_id
from engine import SPEAKER_RATE_HZ, Audio, Engine, EngineSpec, Request

ALONE = Path(__file__).parents[2] / "benchmarks" / "overhead.py"
"""The program that measures the engine's own overhead. It uses engine internals, which app must not do."""

LONGEST_S = 10.0
"""Maximum seconds of speech for a text; only random weights reach it."""

TEXTS = (
    "The next train to the coast leaves at a quarter past nine, and there is still room in the first carriage.",
    "I would take an umbrella with me, because it has been raining since the early morning.",
    "You can ask me to add two numbers, to spell a word, or to repeat what you say.",
    "It takes about twenty minutes on foot, but the way along the river is much nicer than the road.",
    "Your meeting was moved to Thursday afternoon, so that everyone has time to read the report.",
)


def handovers(rounds: int) -> list[Figure]:
    """Measure the time between the end of a stage's step and the start of the next stage's, and a step's cost, without
    a model.

    The measuring program exists only in a clone of the repository; elsewhere the figure is left out.
    """
    if not ALONE.exists():
        return []
    command = [sys.executable, "-m", f"{ALONE.parent.name}.{ALONE.stem}", "--json", "--rounds", str(rounds)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ALONE.parents[1])
    if result.returncode:
        raise BenchError(f"{ALONE.name} failed: {(result.stderr.splitlines() or ['?'])[-1]}")
    found = orjson.loads(result.stdout)
    return [_cost(name, values, found["bars"][name]) for name, values in found["microseconds"].items()]


def _cost(name: str, values: Sequence[float], bar: float) -> Figure:
    note = f"median of {len(values)} rounds, the best {min(values):.0f} µs"
    return Figure(name=name, value=median(values), unit="µs", bar=bar, note=note)


async def real_time_factor(spec: EngineSpec, rounds: int) -> Figure:
    """Measure the time to speak a text relative to the length of its audio, on one otherwise idle thread."""
    workers = tuple(dataclasses.replace(worker, threads=1) for worker in spec.workers)
    ratios: list[float] = []
    async with Engine(dataclasses.replace(spec, workers=workers)) as engine:
        await _spoken(engine, TEXTS[0])
        for text in TEXTS * rounds:
            took_s, audio_s = await _spoken(engine, text)
            ratios.append(took_s / audio_s)
    return Figure(
        name="RTF of talker + code2wav, one thread",
        value=median(ratios),
        unit="",
        bar=0.12,
        note=f"median of {len(ratios)} texts",
    )


async def _spoken(engine: Engine, text: str) -> tuple[float, float]:
    """Speak a text. Returns the seconds that this took, and the seconds of audio."""
    request = Request(
        id=new_id("bench"),
        session="bench",
        messages=(),
        say=text,
        max_audio_s=LONGEST_S,
    )
    samples = 0
    begun_s = last_s = time.monotonic()
    async with engine.open(request) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Audio):
                samples += len(chunk.wave)
                last_s = time.monotonic()
    return last_s - begun_s, samples / SPEAKER_RATE_HZ
