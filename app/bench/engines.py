"""What is measured of the engine alone, in an engine of the bench's own: hand-overs, and the talker's real-time factor.

Uses the engine's public names only: its timeline says when a stage's first output was made and when the next stage's
first step began.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from statistics import median

from app.bench.figures import Figure, percentile
from app.realtime.ids import new_id
from engine import SPEAKER_RATE_HZ, Engine, EngineSpec, Message, Request, TextPart, parse_config

HANDOVERS = (("thinker.out", "talker.step"), ("talker.out", "code2wav.step"))
NO_OP = """
model: script
workers: {workers}
chunks: {{first: 1, growth: 1.5, steady: 12}}
"""
ONE_WORKER = "[{stages: [ears, thinker, talker, code2wav]}]"
ONE_EACH = "[{stages: [ears]}, {stages: [thinker]}, {stages: [talker]}, {stages: [code2wav]}]"

TEXTS = (
    "The next train to the coast leaves at a quarter past nine, and there is still room in the first carriage.",
    "I would take an umbrella with me, because it has been raining since the early morning.",
    "You can ask me to add two numbers, to spell a word, or to repeat what you say.",
    "It takes about twenty minutes on foot, but the way along the river is much nicer than the road.",
    "Your meeting was moved to Thursday afternoon, so that everyone has time to read the report.",
)


async def handovers(count: int) -> list[Figure]:
    """From the end of a stage's step to the beginning of the next stage's, where no model computes."""
    inside = await _handovers(NO_OP.format(workers=ONE_WORKER), count)
    across = await _handovers(NO_OP.format(workers=ONE_EACH), count)
    return [
        _handover("hand-over in process, p50", inside, bar=60),
        _handover("hand-over across processes, p50", across, bar=150),
    ]


def _handover(name: str, took_us: Sequence[float], bar: float) -> Figure:
    note = f"{len(took_us)} of them, the fastest {min(took_us):.0f} µs"
    return Figure(name=name, value=percentile(took_us, 50), unit="µs", bar=bar, note=note)


async def _handovers(config: str, count: int) -> list[float]:
    took_us: list[float] = []
    async with Engine(parse_config(config)) as engine:
        for _ in range(count):
            marks, _, _ = await _spoken(engine, "one two three")
            took_us += [(marks[to] - marks[done]) * 1e6 for done, to in HANDOVERS]
    return took_us


async def real_time_factor(spec: EngineSpec, rounds: int) -> Figure:
    """Time to speak a given text over its sound's length: talker and code2wav on one thread, nothing else to do."""
    workers = tuple(dataclasses.replace(worker, threads=1) for worker in spec.workers)
    ratios: list[float] = []
    async with Engine(dataclasses.replace(spec, workers=workers)) as engine:
        await _spoken(engine, TEXTS[0])
        for text in TEXTS * rounds:
            _, took_s, audio_s = await _spoken(engine, text)
            ratios.append(took_s / audio_s)
    return Figure(
        name="RTF of talker + code2wav, one thread", value=median(ratios), unit="", bar=0.15,
        note=f"median of {len(ratios)} texts",
    )  # fmt: skip


async def _spoken(engine: Engine, text: str) -> tuple[dict[str, float], float, float]:
    """Have a text spoken: its timeline's marks, the seconds that took, and those that it lasts."""
    request = Request(id=new_id("bench"), session="bench", messages=(Message("assistant", (TextPart(text),)),))
    samples = 0
    begun_s = last_s = time.monotonic()
    async with engine.open(request) as chunks:
        async for chunk in chunks:
            if chunk.kind == "audio":
                samples += len(chunk.data)
                last_s = time.monotonic()
        return dict(chunks.timeline.marks), last_s - begun_s, samples / SPEAKER_RATE_HZ
