"""A stage of several voices: the language of the turn chooses one, unless the request names one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.chunk import Audio, Checkpoint, Chunk, Speech, Text, Transcript, kinds
from engine.core import Request, SpeechHints
from engine.deployment.config import EngineSpec, ModelSpec, StageSpec
from engine.deployment.describe import describe
from engine.errors import ConfigError
from engine.ipc import messages
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import FakeStage, Result, only, opened, request, rigged, working

VOICES = Path(__file__).with_name("scripted_voices.py")
ENGLISH, GERMAN, JAPANESE = "English", "German", "Japanese"


def voice(*names: str, **options: Any) -> Any:
    models = tuple((f"{VOICES}:{name}", StageConfig()) for name in names or (ENGLISH, GERMAN, JAPANESE))
    return make("tts.by_language", "voice", 2, StageConfig(models=models, options=options))


def ears(language: str) -> FakeStage:
    def hear(req: StageRequest) -> Result:
        req.pending.clear()
        req.needs_input, req.done = not req.ended, req.ended
        return [Transcript("hello", final=True, language=language)] if req.ended else []

    return FakeStage(
        "ears", 0, hear, takes=kinds(Speech), emits=kinds(Transcript), feeds=kinds(Transcript), answers=False
    )


def thinker(answer: str) -> FakeStage:
    def think(req: StageRequest) -> Result:
        req.pending.clear()
        req.needs_input, req.done = not req.ended, req.ended
        half = len(answer) // 2
        return [Text(answer[:half], 0), Text(answer[half:], half)] if req.ended else []

    return FakeStage("thinker", 1, think, takes=kinds(Transcript), emits=kinds(Text), feeds=kinds(Text))


async def speech() -> AsyncIterator[Chunk]:
    yield Speech(np.ones(1600, np.int16))


def live(**fields: Any) -> Request:
    return request(live=True, **fields)


async def said(asked: Request, language: str, answer: str, apart: bool = False) -> list[str]:
    """Return what each voice was given to say. ``apart``: the thinker and the voice run in different workers."""
    stage, thinks = voice(), thinker(answer)
    hosts: Sequence[Sequence[Any]] = [[thinks], [stage]] if apart else [[thinks, stage]]
    async with rigged([ears(language)], *hosts) as rig, rig.open(asked, speech() if asked.live else None) as chunks:
        sound = only(Audio, [chunk async for chunk in chunks])
    spoken = [f"{type(one).__name__} {line}" for one in stage._stages for line in one.said]
    levels = {round(float(level), 1) for audio in sound for level in np.unique(audio.wave)}
    assert levels == {one.level for one in stage._stages if one.said}
    return spoken


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("language", "spoken"),
    [
        ("de", "German 0: Um vierzehn Uhr dreißig."),
        ("de-AT", "German 0: Um vierzehn Uhr dreißig."),
        ("en", "English 0: Um 14:30."),
        ("", "English 0: Um 14:30."),
        ("fr", "English 0: Um 14:30."),
    ],
)
async def test_the_detected_language_chooses_the_voice_and_its_number_rules(
    language: str, spoken: str, apart: bool
) -> None:
    pytest.importorskip("unicode_rbnf")
    assert await said(live(), language, "Um 14:30.", apart) == [spoken]


async def test_without_a_detected_language_the_sessions_hint_chooses() -> None:
    hinted = SpeechHints(languages=("de",))
    assert await said(live(hints=hinted), "", "Guten Tag.") == ["German 0: Guten Tag."]
    assert await said(request(hints=SpeechHints(languages=("ja",))), "", "Hai.") == ["Japanese kei: Hai."]
    assert await said(live(hints=SpeechHints(languages=("ja",))), "de", "Hai.") == ["German 0: Hai."]


async def test_a_voice_that_the_request_names_is_kept_with_its_own_rules() -> None:
    assert await said(live(voice="joe"), "de", "Um 14:30.") == ["English joe: Um 14:30."]


@pytest.mark.parametrize("language", ["", "de"])
async def test_a_script_that_the_voice_of_the_language_cannot_read_chooses_another(language: str) -> None:
    assert await said(live(), language, "こんにちは。") == ["Japanese kei: こんにちは。"]


async def test_an_answer_without_a_letter_ends() -> None:
    assert await said(live(), "de", "…!") == []


async def test_another_replica_keeps_the_voice() -> None:
    async with working(voice()) as desk:
        desk.put(opened("a", "voice"), messages.Feed("a", Text("Hallo.", 0, language="de")), messages.End("a"))
        await desk.ended("a")
        (left,) = only(Checkpoint, [chunk for emit in desk.of(messages.Emit, "a") for chunk in emit.kept])
    async with working(another := voice()) as desk:
        resume = messages.Resume({}, {}, None, (left,))
        desk.put(messages.Open("b", request(id="b"), ("voice",), 64, resume=resume))
        desk.put(messages.Feed("b", Text("Hallo.", 0)), messages.End("b"))
        await desk.ended("b")
    assert [stage.said for stage in another._stages] == [[], ["0: Hallo."], []]


def test_voices_of_the_same_id_get_their_language_as_a_prefix() -> None:
    voices = voice().info.facets.voices
    assert [one.id for one in voices] == ["auto", "en-US-0", "joe", "de-0", "anna", "kei"]
    assert [one.language for one in voices] == ["", "en-US", "en-US", "de", "de", "ja"]
    assert [one.id for one in voice(voice="anna").info.facets.voices][:2] == ["anna", "auto"]


@pytest.mark.parametrize(
    ("stage", "error"),
    [
        (StageSpec(use="tts.by_language"), "models: name at least one voice"),
        (StageSpec(use="tts.by_language", models=(ModelSpec(use="nano.thinker"),)), r"models\[0\]: use a voice that"),
        (StageSpec(use="tts.by_language", models=(ModelSpec(use=f"{VOICES}:{GERMAN}"),) * 2), "two voices are called"),
        (
            StageSpec(use="tts.by_language", models=(ModelSpec(use=f"{VOICES}:{GERMAN}"),), options={"voice": "ana"}),
            "there is no voice 'ana'",
        ),
    ],
)
def test_what_cannot_be_combined_is_refused(stage: StageSpec, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        describe(EngineSpec(stages=(stage,)))
