"""Measure speech recognition, thinker and voice with real weights.

    python -m benchmarks.real_weights [--ears NAME] [--thinker FORM] [--voice NAME] [--config FILE] [--turns N]
        [--json FILE]

NAME is a catalogue model installed with `parley pull`; FORM is a value of `parley serve --thinker`. Missing options use
the configuration's parts (nano). It prints:

start        time until all stages are ready, and the memory of all processes
words wrong  word errors on recordings of English sentences (tests/data/spoken), spoken in real time
transcript   from the last sample of a recording to its final transcript, p50
first word   of answers to typed questions, p50
first sound  of the same, p50
voice        seconds of computing per second of speech; above 1, a listener runs dry (typed, one at a time)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import soundfile
from rich.console import Console

from app.commands.deployment import Parts, deployment
from engine import (
    MIC_RATE_HZ,
    SPEAKER_RATE_HZ,
    Audio,
    Engine,
    EngineError,
    Message,
    Request,
    Speech,
    Text,
    TextPart,
    Transcript,
)
from engine.training.nano.distance import edits

SPOKEN = Path(__file__).parents[1] / "tests" / "data" / "spoken"
PIECE_S = 0.02
QUESTIONS = (
    "Please tell me in one sentence what the moon is.",
    "Name three vegetables.",
    "What should I cook tonight, in two sentences?",
    "Why is the sky blue? One sentence.",
    "Say good morning to a friend.",
)
print_ = Console(width=140, highlight=False).print


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("ears", "thinker", "voice", "config"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    try:
        figures = asyncio.run(measured(asked))
    except EngineError as error:
        sys.exit(f"error: {error}")
    for name, figure in figures.items():
        print_(f"{name:12} {figure}")
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1))


async def measured(asked: argparse.Namespace) -> dict[str, Any]:
    spec = deployment(asked.config, parts=Parts(asked.thinker, None, asked.ears, asked.voice))
    begun_s = time.monotonic()
    async with Engine(spec) as engine:
        start_s = time.monotonic() - begun_s
        here = psutil.Process()
        memory = sum(one.memory_info().rss for one in (here, *here.children(recursive=True)))
        figures: dict[str, Any] = {"start": f"{start_s:.1f} s, {memory / 1e9:.2f} GB"}
        if "audio" in engine.model.abilities or engine.model.heard_languages:
            figures |= await ears(engine, asked.turns)
        figures |= await answers(engine, asked.turns)
    return figures


async def ears(engine: Engine, turns: int) -> dict[str, str]:
    """Measure word errors and transcript delay on recordings that are spoken in real time."""
    wrong = words = 0
    late_ms: list[float] = []
    for n, spoken in enumerate(json.loads((SPOKEN / "index.json").read_text())[:turns]):
        pcm, rate_hz = soundfile.read(SPOKEN / spoken["file"], dtype="int16")
        assert rate_hz == MIC_RATE_HZ
        ended = [0.0]
        request = Request(id=f"ears{n}", session=f"ears{n}", messages=(), live=True, wants=frozenset({"transcript"}))
        text = ""
        async with engine.open(request, said(pcm, ended)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Transcript) and chunk.final:
                    text = chunk.text
                    late_ms.append((time.monotonic() - ended[0]) * 1000)
        expected = plain(spoken["text"])
        wrong, words = wrong + edits(expected, plain(text)), words + len(expected)
    return {
        "words wrong": f"{100 * wrong / words:.1f} % of {words}",
        "transcript": f"{statistics.median(late_ms):.0f} ms" if late_ms else "none came",
    }


async def said(pcm: np.ndarray[Any, Any], ended: list[float]) -> AsyncGenerator[Speech]:
    """Yield a recording in real time, and note when its last sample was sent."""
    piece = round(PIECE_S * MIC_RATE_HZ)
    begun_s = time.monotonic()
    for at in range(0, len(pcm), piece):
        await asyncio.sleep(max(0.0, begun_s + (at + piece) / MIC_RATE_HZ - time.monotonic()))
        yield Speech(pcm[at : at + piece])
    ended[0] = time.monotonic()


async def answers(engine: Engine, turns: int) -> dict[str, str]:
    """Measure typed questions, one after the other."""
    word_ms: list[float] = []
    sound_ms: list[float] = []
    computing_s = spoken_s = 0.0
    for n in range(turns):
        message = Message("user", (TextPart(QUESTIONS[n % len(QUESTIONS)]),))
        request = Request(id=f"typed{n}", session=f"typed{n}", messages=(message,))
        begun_s = time.monotonic()
        first_word_s = first_sound_s = 0.0
        async with engine.open(request) as chunks:
            async for chunk in chunks:
                now_s = time.monotonic()
                if isinstance(chunk, Text):
                    first_word_s = first_word_s or now_s
                elif isinstance(chunk, Audio):
                    first_sound_s = first_sound_s or now_s
                    spoken_s += len(chunk.wave) / SPEAKER_RATE_HZ
        computing_s += time.monotonic() - (first_word_s or begun_s)
        word_ms += [(first_word_s - begun_s) * 1000] if first_word_s else []
        sound_ms += [(first_sound_s - begun_s) * 1000] if first_sound_s else []
    return {
        "first word": f"{statistics.median(word_ms):.0f} ms" if word_ms else "none came",
        "first sound": f"{statistics.median(sound_ms):.0f} ms" if sound_ms else "none came",
        "voice": f"{computing_s / spoken_s:.2f} s a second" if spoken_s else "silent",
    }


def plain(text: str) -> Sequence[str]:
    """Return the words of a text without punctuation and case."""
    return re.sub(r"[^\w' ]", " ", text.lower()).split()


if __name__ == "__main__":
    main()
