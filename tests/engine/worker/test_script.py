"""The scripted family's answers."""

import dataclasses
from pathlib import Path

import numpy as np

from engine import Engine, load_config
from engine.chunk import Audio
from engine.core import AudioPart, Message, Request, TextPart, ToolCallPart, ToolResultPart
from engine.worker.models.script import _answer, _last_text  # pyright: ignore[reportPrivateUsage]

ROOT = Path(__file__).parents[3]


def said(request: Request, text: str) -> str:
    return " ".join(_answer(text, request).words)


def test_speech_that_was_heard_before_is_answered_by_its_words() -> None:
    asked = Request(id="r", session="s", messages=(Message("user", (AudioPart(None, "1.2 seconds"),)),))
    assert said(asked, _last_text(asked)) == "I heard 1.2 seconds."


def test_a_tools_result_is_told_and_the_answers_before_are_recalled() -> None:
    history = (
        Message("assistant", (TextPart("word0 word1"),)),
        Message("assistant", (ToolCallPart("time", "{}", "call_1"),)),
        Message("tool", (ToolResultPart("call_1", "noon"),)),
    )
    request = Request(id="r", session="s", messages=history)
    assert said(request, _last_text(request)) == "The tool says: noon"
    asked = Request(id="r", session="s", messages=(*history, Message("user", (TextPart("said"),))))
    assert said(asked, _last_text(asked)).split() == ["I", "said:", "word0", "word1"]


async def test_every_word_is_heard_from_its_first_frame_on_and_its_end_is_told() -> None:
    """What a recording of the output is measured by: onsets that can be found, whatever the tones, and exact marks."""
    spec = dataclasses.replace(load_config(ROOT / "configs" / "script.yaml"), launcher="inline")
    text = "same same other other"
    asked = Request(id="r", session="s", messages=(), say=text)
    async with Engine(spec) as engine, engine.open(asked) as chunks:
        sound = [chunk async for chunk in chunks if isinstance(chunk, Audio)]
    loud = np.abs(np.concatenate([chunk.wave for chunk in sound])).reshape(-1, 240).max(1) > 0.01  # 10 ms
    onsets = [10 * at for at in np.flatnonzero(loud & ~np.concatenate([[False], loud[:-1]]))]
    assert onsets == [0, 240, 480, 720]
    ends = [end for chunk in sound for _, end in chunk.marks]
    assert [(40 * n, end) for n, end in enumerate(ends, start=1) if end != ([0, *ends][n - 1])] == [
        *((240, 5), (480, 10), (720, 16), (960, 21))
    ]
