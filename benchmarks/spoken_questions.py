"""A hundred open questions, spoken by six voices to a running server: what it understands, and when it answers.

    python -m benchmarks.spoken_questions FOLDER --make           # speaks the questions into FOLDER, once
    python -m benchmarks.spoken_questions FOLDER --url ws://127.0.0.1:8000 [--callers N] [--json FILE]

The voices are five of Kokoro's and one of Piper's; `python -m tests.real.weights` fetches both. Each question is asked
in a session of its own over the WebSocket, at the pace of a microphone, then typed in another session.

not understood  turns without an answer, or with more than half of the words heard wrongly
words wrong     word error rate of the transcripts, numbers written in words
first sound     from the last sample above -40 dBFS to the first audible sample of the answer, p50 and p95
typed           from `response.create` to the first audible sample, p50 and p95
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from rich.console import Console

from app.bench.figures import percentile
from app.bench.target import spoken
from app.client import ClientError, SpeechStopped, TranscriptionCompleted, connect
from app.client.events import Event
from app.client.reader import Events
from benchmarks.recognizers import words_of
from engine import SPEAKER_RATE_HZ, Audio, Engine, EngineSpec, Request, StageSpec
from engine.core import Wave
from engine.training.nano.distance import edits
from tests.real.weights import CACHE, is_here

QUESTIONS = Path(__file__).with_name("open_questions.txt")
VOICES = (
    ("kokoro-int8", "am_michael"),
    ("kokoro-int8", "af_bella"),
    ("piper-joe", None),
    ("kokoro-int8", "af_sarah"),
    ("kokoro-int8", "am_fenrir"),
    ("kokoro-int8", "af_heart"),
)
"""Model and speaker; the questions take them in turn."""
LEAD = np.zeros(SPEAKER_RATE_HZ // 4, np.int16)
PATIENCE_S = 20.0
TOKENS = 15
"""The longest answer: what it says is rated by `benchmarks.first_questions`."""
print_ = Console(width=160, highlight=False).print


@dataclass(frozen=True, slots=True)
class Turn:
    """A question, and what the server made of it."""

    question: str
    heard: str
    answer: str
    status: str
    """``completed`` or ``incomplete``; otherwise the error."""
    wrong: int
    words: int
    stops: int
    """How many turns the server made of the question."""
    first_sound_ms: float | None
    typed_ms: float | None

    @property
    def understood(self) -> bool:
        return self.first_sound_ms is not None and 2 * self.wrong <= self.words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--url", default="ws://127.0.0.1:8000")
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    questions = QUESTIONS.read_text(encoding="utf-8").splitlines()
    if given.make:
        given.folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(make(questions, given.folder))
        return
    try:
        turns = asyncio.run(ask_all(given.url, given.folder, questions[: given.count], given.callers))
    except ClientError as error:
        sys.exit(f"error: {error}")
    report(turns)
    if given.json:
        given.json.write_text(json.dumps([asdict(turn) for turn in turns], indent=1), encoding="utf-8")


async def make(questions: Sequence[str], folder: Path) -> None:
    """Speak every question into ``NN.wav``. Exits with one sentence if a voice is missing."""
    spoken_by = list(zip(range(len(questions)), questions, cycle(VOICES), strict=False))
    for model in dict.fromkeys(model for model, _ in VOICES):
        if not is_here(model):
            sys.exit(f"error: {model} is missing: run python -m tests.real.weights")
        async with Engine(voice_alone(CACHE / model)) as engine:
            for number, question, (chosen, speaker) in spoken_by:
                if chosen == model:
                    wave = await speech(engine, question, speaker)
                    soundfile.write(folder / f"{number:02}.wav", wave, SPEAKER_RATE_HZ)


def voice_alone(weights: Path) -> EngineSpec:
    """Return a deployment that only speaks, by a voice of ``tts.sherpa``."""
    thinker = StageSpec(name="thinker", use="script.thinker")
    talker = StageSpec(name="talker", use="tts.sherpa", weights=str(weights))
    return EngineSpec(stages=(thinker, talker), launcher="inline")


async def speech(engine: Engine, text: str, speaker: str | None = None) -> Wave:
    """Return float32 [samples] at SPEAKER_RATE_HZ."""
    request = Request(id=text, session=text, messages=(), say=text, voice=speaker, wants=frozenset({"audio"}))
    async with engine.open(request) as chunks:
        return np.concatenate([chunk.wave async for chunk in chunks if isinstance(chunk, Audio)])


async def ask_all(url: str, folder: Path, questions: Sequence[str], callers: int) -> list[Turn]:
    free = asyncio.Semaphore(callers)

    async def ask(number: int, question: str) -> Turn:
        async with free:
            turn = await ask_aloud(url, question, folder / f"{number:02}.wav")
        mark = "" if turn.understood else "NOT UNDERSTOOD "
        print_(f"{number:3} {mark}{turn.question!r} -> {turn.heard!r} -> {turn.answer[:90]!r}", markup=False)
        return turn

    return await asyncio.gather(*(ask(number, question) for number, question in enumerate(questions)))


async def ask_aloud(url: str, question: str, recording: Path) -> Turn:
    """Ask a question by voice, then in writing, each in a new session."""
    expected = words_of(question)
    async with connect(url) as client:
        await client.configure(max_output_tokens=TOKENS, audio={"input": {"transcription": {"model": "default"}}})
        seen: list[Event] = []
        watching = asyncio.create_task(keep(client.events(), seen))
        await client.speak(np.concatenate([LEAD, spoken(recording)]))
        client.speech_ended()
        answer: Any = None
        status = "no answer"
        try:
            async with asyncio.timeout(4 * PATIENCE_S):
                answer = await client.answer(PATIENCE_S)
            status = answer.status
        except (ClientError, TimeoutError) as error:
            status = str(error) or "no end"
        finally:
            watching.cancel()
    heard = " ".join(event.transcript for event in seen if isinstance(event, TranscriptionCompleted))
    return Turn(
        question=question,
        heard=heard,
        answer=answer.text if answer else "",
        status=status,
        wrong=edits(expected, words_of(heard)),
        words=len(expected),
        stops=sum(isinstance(event, SpeechStopped) for event in seen),
        first_sound_ms=milliseconds(answer.ttfa_s) if answer else None,
        typed_ms=await typed(url, question),
    )


async def keep(events: Events, seen: list[Event]) -> None:
    async for event in events:
        seen.append(event)  # noqa: PERF401 - read while it grows


async def typed(url: str, question: str) -> float | None:
    async with connect(url) as client:
        try:
            async with asyncio.timeout(4 * PATIENCE_S):
                return milliseconds((await client.ask(question, max_output_tokens=TOKENS)).ttfa_s)
        except (ClientError, TimeoutError):
            return None


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 1)


def report(turns: Sequence[Turn]) -> None:
    wrong = sum(turn.wrong for turn in turns)
    words = sum(turn.words for turn in turns)
    failed = [turn.status for turn in turns if turn.status not in {"completed", "incomplete"}]
    print_(f"not understood  {sum(not turn.understood for turn in turns)} of {len(turns)}")
    print_(f"failed          {len(failed)} {sorted(set(failed))}", markup=False)
    print_(f"words wrong     {100 * wrong / words:.1f} % of {words}")
    print_(f"split turns     {sum(turn.stops > 1 for turn in turns)}")
    print_(f"first sound     {' / '.join(both(turn.first_sound_ms for turn in turns))} ms")
    print_(f"typed           {' / '.join(both(turn.typed_ms for turn in turns))} ms")


def both(values: Iterator[float | None]) -> list[str]:
    known = [value for value in values if value is not None]
    return [f"{percentile(known, percent):.0f}" if known else "-" for percent in (50, 95)]


if __name__ == "__main__":
    main()
