"""The thinker that asks a chat completions server: the LLM that somebody runs already, between any ears and voice."""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import assert_never

from engine.chunk import Chunk, Text, ToolCall, ToolCallDelta, Transcript, Usage, VoiceText, kinds
from engine.core import Ability, Facets, Request, StageInfo, TextPart
from engine.errors import EngineError, Overloaded, StageUnavailable
from engine.thinkers import ANY_MODEL, leaving
from engine.worker.llm.client import Client
from engine.worker.llm.deltas import Thought
from engine.worker.llm.messages import body_of
from engine.worker.llm.options import Options, options_of
from engine.worker.llm.spoken_text import SpokenText
from engine.worker.stage import StageConfig
from engine.worker.streamed import Streamed

log = logging.getLogger(__name__)

NOT_UNDERSTOOD = "Sorry, I did not understand that."
"""Is said, and the server not asked, where the ears made nothing of what the user said."""

PROBE_EVERY_S = 30.0
"""How often a server that is down is looked for."""


class Thinker(Streamed):
    """Its text goes to the client as the model wrote it, and to the voice without marks and code.

    A server answers differently every time: of an answer that has begun, nothing is asked again.
    """

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options = options_of(config.options)
        sees: frozenset[Ability] = frozenset({"image"} if options.images else ())
        return StageInfo(
            takes=kinds(Transcript), emits=kinds(Text, ToolCallDelta, ToolCall, Usage), feeds=kinds(VoiceText),
            answers=True, slots=config.slots, replay="never",
            facets=Facets(
                model=options.model, sees=sees, context=options.context,
                leaving=leaving(options.url, images=options.images, audio=options.audio),
            ),
        )  # fmt: skip

    def __init__(self, config: StageConfig, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        super().__init__(config)
        self._sleep = sleep
        self._options = options_of(config.options)
        self._client = Client(self._options)
        self._down = asyncio.Event()

    async def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        said = await _said(inputs) if request.hears else None
        if said is not None and not said.text:
            for chunk in _as_it_stands(NOT_UNDERSTOOD):
                yield chunk
            return
        try:
            async with aclosing(self._ask(request, said)) as chunks:
                async for chunk in chunks:
                    self.unavailable = ""
                    yield chunk
        except StageUnavailable as error:
            if not isinstance(error, Overloaded):
                self._lost(error)
            raise

    async def watch(self) -> None:
        """Look for the server at the start, and every half minute while it is down; no model is asked anything."""
        while True:
            self._down.clear()
            try:
                self._found(await self._client.probe())
            except EngineError as error:
                self._lost(error)
            if not self.unavailable:
                await self._down.wait()
            await self._sleep(PROBE_EVERY_S)

    async def aclose(self) -> None:
        await self._client.aclose()

    def _found(self, names: Sequence[str]) -> None:
        """The server is there, with these models."""
        if self.unavailable:
            log.warning("the language model's server at %s is back", self._options.host)
        self.unavailable = _missing(self._options, names)
        if self.unavailable:
            log.warning(self.unavailable)

    def _lost(self, error: EngineError) -> None:
        if not self.unavailable:
            log.warning("%s It is looked for every %g s.", error, PROBE_EVERY_S)
        self.unavailable = str(error)
        self._down.set()

    async def _ask(self, request: Request, said: TextPart | None) -> AsyncGenerator[Chunk]:
        aloud = SpokenText()
        async with aclosing(self._client.answer(body_of(request, self._options, said), request.id)) as deltas:
            async for delta in deltas:
                match delta:
                    case Text(text):
                        yield delta
                        for piece in aloud.feed(text):
                            yield piece
                    case Usage():
                        for piece in aloud.flush():
                            yield piece
                        yield delta
                    case ToolCallDelta() | ToolCall():
                        yield delta
                    case Thought():
                        pass  # nobody hears what a model thinks
                    case _:
                        assert_never(delta)


STAGE = Thinker


async def _said(inputs: AsyncIterator[Chunk]) -> TextPart:
    """What the user said, once they have finished; empty where the ears did not understand."""
    text = ""
    async for chunk in inputs:
        if isinstance(chunk, Transcript) and chunk.final and chunk.understood:
            text = chunk.text
    return TextPart(text)


def _as_it_stands(text: str) -> tuple[Chunk, ...]:
    """An answer that nobody is asked for."""
    return Text(text, 0), VoiceText(text, 0), Usage()


def _missing(options: Options, names: Sequence[str]) -> str:
    """Why a server with these models cannot answer; empty if it can, or tells no names."""
    if not names or options.model == ANY_MODEL or {options.model, f"{options.model}:latest"} & {*names}:
        return ""
    close = difflib.get_close_matches(options.model, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names[:8])}"
    return f"The language model's server at {options.host} has no model {options.model!r} ({hint})."
