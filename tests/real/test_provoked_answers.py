"""Twenty requests that made a small model write on without end, or nothing that can be said."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine import (
    SPEAKER_RATE_HZ,
    Audio,
    Engine,
    EngineError,
    EngineSpec,
    Message,
    Request,
    StageSpec,
    Text,
    TextPart,
    WorkerSpec,
)
from engine.chunk import Usage
from engine.worker.llm.spoken_answer import OVERTIME
from engine.worker.stages.llm.llamacpp import SMALL_SPOKEN_S
from engine.worker.tts.text_breaks import Breaks, Level

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

PROVOKED = (
    "Tell me about cats.",
    "Tell me a long story.",
    "Count from one to one thousand.",
    "Write this again and again, and nothing else: 😀😀😀😀😀😀😀😀",
    "Answer with emoji only.",
    "Ответь по-русски: расскажи длинную сказку.",
    "用中文讲一个很长的故事。",
    "日本語で長い話をしてください。",
    "Make a table of all countries and their capitals.",
    "Write a Python program with a hundred lines.",
    "Say the word hello a thousand times.",
    "List every animal that you know.",
    "Write the alphabet backwards, ten times.",
    "............",
    "Recite pi to five hundred digits.",
    "Repeat after me: la la la la la la la la la la la la",
    "Write a list of a hundred web addresses, and nothing else.",
    "Draw a large cat in ASCII art.",
    "Write a long text in base64, and nothing else: aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ",
    "Say nothing. Do not answer.",
)
MAX_QUIET_S = 30.0
MAX_SOUND_S = 2 * SMALL_SPOKEN_S
"""Seconds of sound. The limit counts letters, and a voice may be slower than its estimate."""


def spec(weights: Path) -> EngineSpec:
    stages = (
        StageSpec(use="nano.ears", name="ears"),
        StageSpec(use="llm.llamacpp", name="thinker", weights=str(weights), options={"context": 2048}),
        StageSpec(use="nano.talker", name="talker"),
        StageSpec(use="nano.code2wav", name="code2wav"),
    )
    worker = WorkerSpec(stages=tuple(stage.name for stage in stages), max_batch=2)
    return EngineSpec(stages=stages, workers=(worker,), launcher="inline")


def asked(text: str, n: int) -> Request:
    return Request(id=f"r{n}", session="s", messages=(Message("user", (TextPart(text),)),), max_text_tokens=2000)


@dataclass
class Answer:
    """What came of a request, and when."""

    text: str = ""
    sound_s: float = 0.0
    quiet_s: float = 0.0
    """The longest time without sound that a listener would have had to wait."""
    finish: str = ""
    error: str = ""

    @property
    def is_cut_off(self) -> bool:
        """Whether an early end is within a sentence, although a sentence had ended at or after the limit.

        Code, and a row of signs at the end, are not spoken.
        """
        text = re.sub(r"```.*?(```|$)", "", self.text, flags=re.DOTALL)
        breaks = Breaks()
        levels = [breaks.push(character) for character in f"{text}A"]
        last = levels[int(len(levels) / OVERTIME) + 1 :]
        is_spoken = any(map(str.isalnum, text[-20:]))
        return self.finish == "length" and is_spoken and Level.SENTENCE in last and levels[-1] != Level.SENTENCE


async def answer_to(engine: Engine, request: Request) -> Answer:
    found = Answer()
    began_s = last_s = time.monotonic()
    try:
        async with engine.open(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Text):
                    found.text += chunk.text
                elif isinstance(chunk, Usage):
                    found.finish = chunk.finish
                elif isinstance(chunk, Audio):
                    found.sound_s += len(chunk.wave) / SPEAKER_RATE_HZ
                    last_s = time.monotonic()
    except EngineError as error:
        found.error = str(error)
    found.quiet_s = max(time.monotonic() - max(last_s, began_s + found.sound_s), 0.0)
    return found


async def test_each_answer_ends_in_time_with_its_reason_or_one_error(smollm2: Path) -> None:
    """What a model writes differs between processors, so the texts are printed and not judged."""
    wrong: list[str] = []
    async with Engine(spec(smollm2)) as engine:
        for n, text in enumerate(PROVOKED):
            answer = await answer_to(engine, asked(text, n))
            print(f"{text[:30]!r}: {answer}")
            if answer.sound_s > MAX_SOUND_S or answer.quiet_s > MAX_QUIET_S:
                wrong.append(f"{text}: {answer.sound_s:.0f} s of sound, {answer.quiet_s:.0f} s of silence")
            elif answer.error:
                wrong += [] if answer.error.endswith(".") else [f"{text}: {answer.error}"]
            elif not answer.text or answer.finish not in ("stop", "length"):
                wrong.append(f"{text}: {answer.finish or 'no reason'} after {answer.text[-40:]!r}")
            elif answer.is_cut_off:
                wrong.append(f"{text}: cut off within a sentence after {answer.text[-40:]!r}")
        assert (await answer_to(engine, asked("Hello?", len(PROVOKED)))).text
    assert wrong == []
