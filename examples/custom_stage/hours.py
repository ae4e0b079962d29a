"""A thinker that knows the opening hours of a shop, between the built-in ears and the built-in voice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from parley_voice.engine.chunk import Chunk, Text, Transcript, Usage, kinds
from parley_voice.engine.core import Request, StageInfo, TextPart
from parley_voice.engine.worker.streamed import Streamed

HOURS = {"saturday": "ten to two", "sunday": None}
USUAL = "nine to six"


class Hours(Streamed):
    """Reads the user's words, typed or heard, and answers with a sentence."""

    info = StageInfo(takes=kinds(Transcript), emits=kinds(Text, Usage), feeds=kinds(Text), answers=True)

    async def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        heard = [chunk.text async for chunk in inputs if isinstance(chunk, Transcript)]
        typed = [part.text for part in request.messages[-1].parts if isinstance(part, TextPart)]
        yield Text(_sentence(heard[-1] if heard else " ".join(typed)), 0)
        yield Usage()


def _sentence(asked: str) -> str:
    day = next((day for day in HOURS if day in asked.lower()), "that day")
    hours = HOURS.get(day, USUAL)
    return f"On {day} we are closed." if hours is None else f"On {day} we are open from {hours}."
