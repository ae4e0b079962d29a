"""The thinker that asks a chat completions server: the LLM that somebody runs already, between any ears and voice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import assert_never

from engine.chunk import Chunk, Text, ToolCall, ToolCallDelta, Transcript, Usage, VoiceText, kinds
from engine.core import Request, StageInfo, TextPart
from engine.worker.llm.client import Client
from engine.worker.llm.deltas import Thought
from engine.worker.llm.messages import body_of
from engine.worker.llm.options import options_of
from engine.worker.llm.spoken_text import SpokenText
from engine.worker.stage import Place
from engine.worker.streamed import Streamed

NOT_UNDERSTOOD = "Sorry, I did not understand that."
"""Is said, and the server not asked, where the ears made nothing of what the user said."""


class Thinker(Streamed):
    """Its text goes to the client as the model wrote it, and to the voice without marks and code.

    A server answers differently every time: of an answer that has begun, nothing is asked again.
    """

    def __init__(self, place: Place) -> None:
        self.info = StageInfo(
            name="thinker", order=1, emits=kinds(Text, ToolCallDelta, ToolCall, Usage), feeds=kinds(VoiceText),
            slots=place.slots, replay="never",
        )  # fmt: skip
        self._options = options_of(place.options)
        self._client = Client(self._options)

    async def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        said = await _said(inputs) if request.hears else None
        if said is not None and not said.text:
            for chunk in _as_it_stands(NOT_UNDERSTOOD):
                yield chunk
        elif said is None and request.messages and request.messages[-1].role == "assistant":
            parts = request.messages[-1].parts
            for chunk in _as_it_stands("".join(part.text for part in parts if isinstance(part, TextPart))):
                yield chunk
        else:
            async with aclosing(self._ask(request, said)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _ask(self, request: Request, said: TextPart | None) -> AsyncGenerator[Chunk]:
        aloud = SpokenText()
        async with aclosing(self._client.answer(body_of(request, self._options, said), request.id)) as deltas:
            async for delta in deltas:
                match delta:
                    case Text(text):
                        yield delta
                        for piece in aloud.feed(text):
                            yield VoiceText(piece.text, piece.start)
                    case Usage():
                        for piece in aloud.flush():
                            yield VoiceText(piece.text, piece.start)
                        yield delta
                    case ToolCallDelta() | ToolCall():
                        yield delta
                    case Thought():
                        pass  # nobody hears what a model thinks
                    case _:
                        assert_never(delta)


async def _said(inputs: AsyncIterator[Chunk]) -> TextPart:
    """What the user said, once they have finished; empty where the ears did not understand."""
    text = ""
    async for chunk in inputs:
        if isinstance(chunk, Transcript) and chunk.final and chunk.understood:
            text = chunk.text
    return TextPart(text)


def _as_it_stands(text: str) -> tuple[Chunk, ...]:
    """An answer that nobody is asked for."""
    return (Text(text, 0), VoiceText(text, 0), Usage()) if text else (Usage(),)
