"""What passes between the stages of a family: whole frames within their books, each sounding once, nobody else's."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import SPEAKER_RATE_HZ, AudioPart, Engine, Message, Request, TextPart, load_config
from engine.chunk import Audio, Chunk, Text, Usage
from tests.engine.fakes import data_of

CONFIGS = Path(__file__).parents[2] / "configs"
BOOKS = {"script": (2, 16), "nano": (8, 512)}
"""Codebooks, and codes of each, of every family."""
SAID = "One two three, four five six."


@pytest.fixture(params=BOOKS)
async def engine(request: pytest.FixtureRequest) -> AsyncGenerator[Engine]:
    spec = replace(load_config(CONFIGS / f"{request.param}.yaml"), launcher="inline")
    async with Engine(spec) as started:
        yield started


async def told(engine: Engine, *before: Message, **fields: Any) -> list[Chunk]:
    """The chunks of an answer whose words are known, after whatever was said before."""
    async with engine.open(Request(id="r", session="s", messages=before, say=SAID, dump=True, **fields)) as chunks:
        return [chunk async for chunk in chunks]


def joined(chunks: list[Chunk], kind: str) -> np.ndarray[Any, Any]:
    return np.concatenate([data_of(chunk) for chunk in chunks if chunk.kind == kind])


@pytest.mark.seed("A2.13", "A2.15", "A2.17", "A4.9")
async def test_frames_lie_within_their_books_and_each_of_them_sounds_once(engine: Engine) -> None:
    """So no mark of an end, which would be a code beyond the book, is voiced, and nothing is cut off or put before."""
    chunks = await told(engine)
    codes, sound = joined(chunks, "codes"), joined(chunks, "audio")
    books, size = BOOKS[engine.model.name]
    assert codes.shape[1] == books
    assert codes.min() >= 0
    assert codes.max() < size
    assert len(sound) == round(len(codes) * engine.model.frame_s * SPEAKER_RATE_HZ)
    ends = [end for chunk in chunks if isinstance(chunk, Audio) for _, end in chunk.marks]
    assert len(ends) == len(codes)
    assert ends[-1] == len(SAID)


@pytest.mark.seed("A2.16")
async def test_a_voice_that_was_heard_does_not_sound_in_the_answer(engine: Engine) -> None:
    """No stage takes a reference voice: what comes out is the answer's frames alone, whoever spoke before."""
    noise = np.random.default_rng(0).integers(-20_000, 20_000, 32_000, dtype=np.int16)
    spoken = Message("user", (AudioPart(noise, "hello there"),))
    alone, after = await told(engine), await told(engine, spoken)
    assert joined(after, "codes").tolist() == joined(alone, "codes").tolist()
    one, other = joined(alone, "audio"), joined(after, "audio")
    assert one.shape == other.shape
    np.testing.assert_allclose(one, other, atol=1e-4)  # chunks may be cut elsewhere


@pytest.mark.seed("A2.11")
@pytest.mark.parametrize(("limit", "finish"), [(512, "stop"), (2, "length")])
async def test_what_ends_the_text_is_not_spoken(engine: Engine, limit: int, finish: str) -> None:
    """The voice comes to the end of the text that was told, and no further, however that ended."""
    request = Request(id="r", session="s", messages=(Message("user", (TextPart("hello"),)),), max_text_tokens=limit)
    async with engine.open(request) as answer:
        chunks = [chunk async for chunk in answer]
    assert next(chunk.finish for chunk in chunks if isinstance(chunk, Usage)) == finish
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))
    assert [chunk.text_end for chunk in chunks if isinstance(chunk, Audio)][-1] == len(text)
