"""A model's file in the worker, measured: what the engine adds to a first sound, and what HTTP adds to a first token.

    python -m benchmarks.llamacpp [--rounds N] [--model FILE.gguf]

first sound     a typed question's, by llm.llamacpp and nano's voice, over the sum of what both take when they are
                called directly: llama.cpp for the words that the voice needs, the voice for its first chunk of them
first token     by llm.llamacpp, against that of the same file behind llama.cpp's HTTP server

The file is the tiny model that `make conformance` has trained, unless another is named. All are asked in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from engine import Audio, Engine, EngineError, EngineSpec, Message, Request, StageSpec, Text, TextPart, WorkerSpec
from engine.chunk import Codes
from engine.config import ChunkSpec
from engine.english.speller import Speller
from engine.worker.codec_frames import Window
from engine.worker.host import make
from engine.worker.pace import OneFrame
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

QUESTION = "Which days does a week have?"
OVER_MS = 25.0
UNCOUNTED = 5
"""Rounds at the start."""
MOST_WORDS = 40
"""Pieces of an answer within which nano's first sound lies."""
VOICE = ("talker", "code2wav")
OPTIONS = {"instructions_suffix": "", "temperature": 0.0}
TINY = Path(__file__).parents[1] / ".conformance" / "tiny_llm"
print_ = Console(width=120, highlight=False).print


class Direct:
    """llama.cpp's own server for a file, and nano's voice: each called with nothing between."""

    def __init__(self, model: Path) -> None:
        xllamacpp: Any = importlib.import_module("xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path = str(model)
        params.n_ctx = 4096
        params.n_parallel = 2
        params.verbosity = -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _threads()
        self._server: Any = xllamacpp.Server(params)
        self.url = str(self._server.listening_address)
        self._talker, self._code2wav = (make(f"nano.{name}", name, 0, StageConfig(slots=1)) for name in VOICE)
        self.words = ""
        """The words that the voice needed for its first sound."""

    def first_sound_ms(self) -> float:
        """The time to the last of the words that the voice needs, and its own from there to its first chunk."""
        begun_s, pieces, speller = time.perf_counter(), self._pieces(), Speller()
        speech = StageRequest(_asked("direct"), 0, OneFrame())
        self._talker.open(speech)
        self.words = ""
        for piece, came_s in pieces:
            taken_s = time.perf_counter()
            speech.pending.append(speller.feed(piece))
            self.words += piece
            if frames := [chunk.frames for chunk in _stepped(self._talker, speech) if isinstance(chunk, Codes)]:
                sound = StageRequest(_asked("direct"), 0, OneFrame())
                self._code2wav.open(sound)
                sound.pending.append(Window(frames[0]))
                _stepped(self._code2wav, sound)
                return (came_s - begun_s + time.perf_counter() - taken_s) * 1000
        raise SystemExit(f"The model's answer is too short for a first sound: {self.words!r}")

    def _pieces(self) -> list[tuple[str, float]]:
        """The answer's pieces, and when each came: none of the voice's work lies between."""
        came: list[tuple[str, float]] = []

        def note(event: Any) -> bool:
            texts = [choice["delta"].get("content") for choice in event["choices"]]
            came.extend((text, time.perf_counter()) for text in texts if text)
            return len(came) > MOST_WORDS

        messages = [{"role": "user", "content": QUESTION}]
        self._server.handle_chat_completions({"messages": messages, "temperature": 0, "stream": True}, note)
        return came


def _stepped(stage: Any, req: StageRequest) -> list[Any]:
    [given] = stage.step([req])
    if isinstance(given, EngineError):
        raise given
    return list(given)


def _threads() -> int:
    return max(1, (psutil.cpu_count(logical=False) or 1) - 1)


def _spec(thinker: StageSpec) -> EngineSpec:
    """A thinker before nano's voice, in one worker."""
    stages = (thinker, *(StageSpec(use=f"nano.{name}", name=name) for name in VOICE))
    worker = WorkerSpec(stages=tuple(stage.name for stage in stages))
    return EngineSpec(stages=stages, workers=(worker,), chunks=ChunkSpec(first=1, growth=1.5, steady=12))


def _asked(id: str) -> Request:
    return Request(id=id, session=id, messages=(Message("user", (TextPart(QUESTION),)),))


async def _first_ms(engine: Engine, id: str, kind: type[Any]) -> float:
    """Measure the time from a question to the first chunk of a kind."""
    begun_s = time.perf_counter()
    async with engine.open(_asked(id)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, kind):
                return (time.perf_counter() - begun_s) * 1000
    raise AssertionError(f"no {kind.__name__} came")


async def measure(rounds: int, model: Path) -> bool:
    direct = Direct(model)
    here = StageSpec(use="llm.llamacpp", name="thinker", weights=str(model), options=OPTIONS, max_batch=2)
    url = {"url": f"{direct.url}/v1", "model": "default"}
    there = StageSpec(use="llm.openai", name="thinker", options={**url, **OPTIONS}, max_batch=2)
    found: list[tuple[float, float, float, float]] = []
    async with Engine(_spec(here)) as own, Engine(_spec(there)) as remote:
        for n in range(UNCOUNTED + rounds):
            sound = await _first_ms(own, f"s{n}", Audio)
            called = direct.first_sound_ms()
            tokens = await _first_ms(own, f"t{n}", Text), await _first_ms(remote, f"h{n}", Text)
            found.append((sound, called, *tokens))
    names = ("first sound", "both called directly", "first token", "first token by HTTP")
    columns = dict(zip(names, zip(*found[UNCOUNTED:], strict=True), strict=True))
    print_(f"{rounds} answers each to {QUESTION!r}; nano needs {direct.words!r} of them for its first sound")
    for name, each in columns.items():
        p95 = sorted(each)[int(0.95 * len(each))]
        print_(f"{name:20}  p50 {statistics.median(each):6.1f} ms   p95 {p95:6.1f} ms")
    sound, called, token, by_http = map(statistics.median, columns.values())
    print_(f"first sound over both called directly, p50: {sound - called:.1f} ms (bar {OVER_MS:g})")
    print_(f"first token over that by HTTP, p50: {token - by_http:+.1f} ms ({token / by_http:.2f} of it)")
    return sound - called <= OVER_MS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--model", type=Path, default=next(iter(sorted(TINY.glob("*.gguf"))), None))
    given = parser.parse_args()
    if given.model is None:
        parser.error("there is no tiny model yet: `make conformance` trains it; or name a file with --model")
    sys.exit(0 if asyncio.run(measure(given.rounds, given.model)) else 1)


if __name__ == "__main__":
    main()
