"""Measure what a remote language model adds to the first sound, and what prefetching its prompt saves.

    python -m benchmarks.thinker latency [--rounds N]
    python -m benchmarks.thinker prepare [--rounds N] [--speech-s S]

latency  time from the remote server's first token to the first sound, minus the same for nano's own thinker and the
         same words, alternately; p50 and p95
prepare  time from the end of speech to the first token, for a conversation of 2000 tokens that is new to llama.cpp's
         server, with and without reading the prompt while the user speaks; a random model of 113 million weights

`latency` uses a server in this program that answers immediately; `prepare` uses llama.cpp's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

from engine import (
    IN_WRITING,
    Audio,
    Engine,
    EngineSpec,
    Message,
    Request,
    Speech,
    StageSpec,
    Text,
    TextPart,
    Usage,
    WorkerSpec,
)
from engine.deployment.config import ChunkSpec
from tests.conformance import tiny_llm
from tests.engine.worker.llm.scripted import Connection, answer, scripted, stream, words

QUESTION = "Spell the word morning."
BEHIND_MS = 20.0
print_ = Console(width=120, highlight=False).print


@dataclass(slots=True)
class RemoteModel:
    """Answers each request with the same words, one per event, and records when it began to send them."""

    words: Sequence[str]
    first_s: float = 0.0

    async def reply(self, connection: Connection) -> bool | None:
        self.first_s = time.monotonic()
        return await stream(*words(*self.words))(connection)


def spec(url: str | None) -> EngineSpec:
    """Return a deployment with nano's voice, and the language model at a URL or nano's own thinker."""
    options = {} if url is None else {"url": url, "model": "m"}
    stages = (
        StageSpec(use="nano.thinker" if url is None else "llm.openai", name="thinker", options=options),
        StageSpec(use="nano.talker", name="talker"),
        StageSpec(use="nano.code2wav", name="code2wav"),
    )
    workers = (WorkerSpec(stages=("thinker", "talker", "code2wav")),)
    return EngineSpec(stages=stages, workers=workers, chunks=ChunkSpec(first=1, growth=1.5, steady=12))


def asked(id: str) -> Request:
    return Request(id=id, session=id, messages=(Message("user", (TextPart(QUESTION),)),))


async def latency(rounds: int) -> bool:
    async with Engine(spec(None)) as own:
        answer_chunks = await _whole(own, asked("words"))
        model = RemoteModel([chunk.text for chunk in answer_chunks if isinstance(chunk, Text)])
        listed = answer(200, {"data": []})
        async with scripted(model.reply, models=listed) as server, Engine(spec(server.url)) as remote:
            ours: list[float] = []
            theirs: list[float] = []
            for n in range(rounds):
                ours.append(await _behind(own, f"own{n}", None))
                theirs.append(await _behind(remote, f"remote{n}", model))
    ours, theirs = ours[5:], theirs[5:]
    over = statistics.median(theirs) - statistics.median(ours)
    print_(f"{len(ours)} answers each, of {len(model.words)} pieces: {''.join(model.words)!r}")
    for name, found in (("nano's own thinker", ours), ("llm.openai", theirs)):
        p95 = sorted(found)[int(0.95 * len(found))]
        print_(f"first token -> first sound, {name:18}  p50 {statistics.median(found):5.1f} ms   p95 {p95:5.1f} ms")
    print_(f"over nano's own, p50: {over:.1f} ms (bar {BEHIND_MS:g})")
    return over <= BEHIND_MS


async def _behind(engine: Engine, id: str, model: RemoteModel | None) -> float:
    """Return the ms from the first token, at its server, to the first sound."""
    async with engine.open(asked(id)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Audio):
                break
        first_s = chunks.timeline.marks["thinker.out"] if model is None else model.first_s
        return (chunks.timeline.marks["audio"] - first_s) * 1000


async def _whole(engine: Engine, request: Request) -> list[Any]:
    async with engine.open(request) as chunks:
        return [chunk async for chunk in chunks]


HISTORY = 2000
SOONER = 3.0


def whole_conversation(name: str) -> tuple[Message, ...]:
    """Return a conversation of about HISTORY tokens with a unique beginning."""
    said = [f"{name} {n} tell me about the months of the year and the days of the week please" for n in range(74)]
    return tuple(Message("assistant" if n % 2 else "user", (TextPart(text),)) for n, text in enumerate(said))


async def speech(seconds: float) -> AsyncGenerator[Speech]:
    """Yield silence as speech, in real time."""
    for _ in range(round(seconds / 0.02)):
        yield Speech(np.zeros(320, np.int16))
        await asyncio.sleep(0.02)


async def prepare(rounds: int, speech_s: float) -> bool:
    found: dict[bool, list[tuple[float, Usage]]] = {False: [], True: []}
    with tiny_llm.served(tiny_llm.random_file(), 2, 4096, max(1, (os.cpu_count() or 1) - 1)) as url:
        for n in range(rounds):
            for ahead in found:
                options = {"url": url, "model": "tiny", "prepare": ahead, "context": 8192, "first_token_s": 300.0}
                stages = (
                    StageSpec(use="script.ears", name="ears"),
                    StageSpec(use="llm.openai", name="thinker", options=options),
                )
                async with Engine(EngineSpec(stages=stages, stall_s=300.0)) as engine:
                    found[ahead].append(await _first_token(engine, f"{n} {ahead}", speech_s))
    for ahead, name in ((False, "when the turn is over"), (True, "while the user speaks")):
        times = [ms for ms, _ in found[ahead]]
        usage = found[ahead][-1][1]
        print_(
            f"prompt read {name:22} first token p50 {statistics.median(times):7.0f} ms   "
            f"({usage.cached_tokens} of {usage.input_tokens} tokens were read before)"
        )
    ratio = statistics.median([ms for ms, _ in found[False]]) / statistics.median([ms for ms, _ in found[True]])
    print_(f"sooner: {ratio:.1f} x (bar {SOONER:g} x), {rounds} conversations each, {speech_s:g} s of speech")
    cold = all(usage.cached_tokens < 100 and usage.input_tokens > HISTORY for _, usage in found[False])
    warm = all(usage.cached_tokens > 0.9 * HISTORY for _, usage in found[True])
    return cold and warm and ratio >= SOONER


async def _first_token(engine: Engine, name: str, speech_s: float) -> tuple[float, Usage]:
    """Return the ms from the end of speech to the first text, and the usage."""
    request = Request(
        id=name, session=name, messages=whole_conversation(name), live=True, wants=IN_WRITING, max_text_tokens=4
    )
    first_ms = 0.0
    async with engine.open(request, speech(speech_s)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Text):
                first_ms = first_ms or (time.monotonic() - chunks.timeline.commit_s) * 1000
            if isinstance(chunk, Usage):
                return first_ms, chunk
    raise AssertionError("an answer without its usage")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["latency", "prepare"])
    parser.add_argument("--rounds", type=int, help="latency: 105; prepare: 5")
    parser.add_argument("--speech-s", type=float, default=20.0, help="seconds of speech")
    given = parser.parse_args()
    prefetch = given.what == "prepare"
    work = prepare(given.rounds or 5, given.speech_s) if prefetch else latency(given.rounds or 105)
    sys.exit(0 if asyncio.run(work) else 1)


if __name__ == "__main__":
    main()
