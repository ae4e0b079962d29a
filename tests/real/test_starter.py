"""The starter with its real weights: what nano answers, what the language model answers, and that both are spoken."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import MIC_RATE_HZ, Audio, Engine, EngineSpec, Message, Request, Text, TextPart, Transcript, load_config
from engine.audio.resampler import resample
from engine.chunk import Output, Speech
from engine.core import SPEAKER_RATE_HZ
from tests.engine.fakes import only
from tests.real.conftest import CACHE

pytestmark = pytest.mark.real
STARTER = Path(__file__).parents[2] / "configs" / "starter.yaml"


@pytest.fixture
def spec(smollm2: Path) -> EngineSpec:
    """The starter with weights from the cache, in this process."""
    ears = CACHE / "moonshine-tiny-en"
    if not ears.is_dir():
        pytest.skip(f"no weights: {ears}")
    here = {"moonshine-tiny-en": str(ears), "smollm2-135m": str(smollm2)}
    found = load_config(STARTER)
    stages = [
        replace(
            stage,
            weights=here.get(stage.weights or ""),
            models=tuple(replace(model, weights=here.get(model.weights or "")) for model in stage.models),
        )
        for stage in found.stages
    ]
    return replace(found, stages=tuple(stages), launcher="inline")


async def asked(engine: Engine, request: Request, pcm: np.ndarray | None = None) -> list[Output]:
    async def speech() -> AsyncGenerator[Speech]:
        assert pcm is not None
        for at in range(0, len(pcm), 320):
            yield Speech(pcm[at : at + 320])

    async with engine.open(request, speech() if pcm is not None else None) as chunks:
        return [chunk async for chunk in chunks]


def typed(text: str, id: str) -> Request:
    return Request(id=id, session="s", messages=(Message("user", (TextPart(text),)),))


def said(chunks: list[Output]) -> str:
    return "".join(text.text for text in only(Text, chunks))


async def test_nano_and_the_language_model_share_the_questions(spec: EngineSpec) -> None:
    async with Engine(spec) as engine:
        france = await asked(engine, typed("What is the capital of France?", "a"))
        total = await asked(engine, typed("What's seven plus five?", "b"))
        spoken = only(Audio, await asked(engine, voice("What is 20 plus 22?")))
        question = np.concatenate([audio.wave for audio in spoken])
        pcm = (resample(question, SPEAKER_RATE_HZ, MIC_RATE_HZ) * 32767).astype(np.int16)
        heard = await asked(engine, Request(id="d", session="t", messages=(), live=True), pcm)
    assert "Paris" in said(france)
    assert only(Audio, france), "and it is spoken"
    assert said(total) == "7 plus 5 is 12."
    final = [chunk.text for chunk in only(Transcript, heard) if chunk.final]
    assert re.search("20|twenty", final[0].lower()), final
    assert said(heard) == "20 plus 22 is 42."


def voice(text: str) -> Request:
    return Request(id="c", session="c", messages=(), say=text, wants=frozenset({"audio"}))
