"""Base class of all thinkers with a chat completions interface, wherever their model runs."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from engine.chunk import Chunk, Text, ToolCall, ToolCallDelta, Transcript, Usage, VoiceText, kinds
from engine.core import Ability, Facets, Request, StageInfo, TextPart
from engine.errors import EngineError, RequestError, StageFailed
from engine.worker.llm.deltas import Delta, ReasoningDelta
from engine.worker.llm.json_answer import checked_json
from engine.worker.llm.messages import Body, beginning_of, begins, body_of
from engine.worker.llm.options import ModelOptions
from engine.worker.llm.spoken_answer import read_aloud
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Streamed

log = logging.getLogger(__name__)

NOT_UNDERSTOOD = "Sorry, I did not understand that."
"""Answer if the user's speech was not understood; the model is not called."""

LIVELIER = 0.7
"""Minimum temperature of a second attempt; at a low one, the model would repeat its empty answer."""


class ChatThinker(Streamed):
    """Base class of such thinkers; subclasses implement ``ask``.

    The client receives the model's text unchanged, and the voice receives it without markup and code.
    """

    patient = True

    def __init__(self, config: StageConfig, options: ModelOptions) -> None:
        super().__init__(config)
        self._asked = options
        self._warming: dict[str, _Warming] = {}
        self._logged_tools = False

    @abstractmethod
    def ask(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[Delta]:
        """Yield the model's answer to a chat completion's body, ending with its Usage. Closing the generator aborts it.

        ``name`` is the prefix of ids for tool calls without one. Raises one EngineError.
        """

    def go_on(self, body: Mapping[str, Any], name: str, written: Sequence[Text]) -> AsyncGenerator[Delta]:
        """Yield the rest of an answer to ``body`` after the text that a lost replica had ``written``.

        For thinkers whose ``replay`` is "continue". Raises one EngineError, also if the server would start another
        answer.
        """
        raise NotImplementedError

    def salted(self, body: Body, owner: str) -> Body:
        """Return the body so that only requests of the same owner share cached prompts, if the model can do that."""
        return body

    async def prepare(self, request: Request) -> None:
        """Let the model prefetch the known part of the prompt. Errors are ignored, because the answer will meet them
        too.
        """
        try:
            body = beginning_of(request, self._asked)
        except RequestError:
            return
        task = asyncio.current_task()
        if body is None or task is None:
            return
        warming = self._warming[request.session] = _Warming(body, task)
        try:
            async with aclosing(self.ask(self.salted(body, request.owner), request.id)) as deltas:
                async for _ in deltas:
                    pass
        except EngineError:
            pass
        finally:
            warming.over.set()
            if self._warming.get(request.session) is warming:
                del self._warming[request.session]

    async def _warmed(self, session: str, body: Mapping[str, Any]) -> None:
        """Wait for a prefetch of this prompt, which is faster than computing it twice. Cancel that of another
        prompt.
        """
        warming = self._warming.get(session)
        if warming is None:
            return
        if not begins(warming.body, body):
            warming.task.cancel()
        await warming.over.wait()

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return self.answer(req.request, inputs, req.kept)

    async def answer(
        self, request: Request, inputs: AsyncIterator[Chunk], kept: Sequence[Chunk] = ()
    ) -> AsyncGenerator[Chunk]:
        """Answer a request. ``kept`` are a lost replica's checkpointed chunks, which are repeated before the rest."""
        said = await _said(inputs) if request.hears else None
        if said is not None and not said.text:
            for chunk in _as_it_stands(NOT_UNDERSTOOD):
                yield chunk
            return
        self._log_unoffered(request)
        body = self.salted(body_of(request, self._asked, said), request.owner)
        await self._warmed(request.session, body)
        answer = self._deltas(body, request.id, kept)
        async with (
            aclosing(checked_json(answer, self._asked.model) if request.format else answer) as deltas,
            aclosing(read_aloud(deltas, request.speaks, self._asked.longest_spoken_s or None)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    def _log_unoffered(self, request: Request) -> None:
        if request.tools and not self._asked.tools and not self._logged_tools:
            self._logged_tools = True
            log.info("%s is not offered the session's tools (tools: false). This is logged once.", self._asked.model)

    async def _deltas(self, body: Mapping[str, Any], name: str, kept: Sequence[Chunk]) -> AsyncGenerator[Delta]:
        written = [chunk for chunk in kept if isinstance(chunk, Text)]
        ends = [chunk for chunk in kept if isinstance(chunk, Usage)]
        for chunk in (*written, *ends):
            yield chunk
        if ends:
            return
        if written and "response_format" in body:
            raise StageFailed("The rest of an answer in JSON is lost, because no model can continue it. Try again.")
        async with aclosing(self.go_on(body, name, written) if written else self._answer(body, name)) as deltas:
            async for delta in deltas:
                yield delta

    async def _answer(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[Delta]:
        """The model's answer. One that is empty, or without a required call, is asked for once more, at a higher
        temperature.

        Small models now and then begin with the token that ends an answer, and some servers ignore ``tool_choice``.
        Raises StageFailed if that happens twice.
        """
        must_call = bool(body.get("tools")) and body["tool_choice"] not in ("auto", "none")
        livelier = {"temperature": max(body["temperature"], LIVELIER)} if "temperature" in body else {}
        for asked in (body, {**body, **livelier}):
            held = list[Text]()
            begun = False
            async with aclosing(self.ask(asked, name)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Text) and not begun and (must_call or not delta.text.strip()):
                        held.append(delta)
                    elif isinstance(delta, Usage) and not begun and (delta.finish == "stop" or (must_call and held)):
                        break
                    else:
                        begun = begun or not isinstance(delta, ReasoningDelta)
                        for one in (*held, delta):
                            yield one
                        held.clear()
            if begun:
                return
        failure = "made no call, which tool_choice requires" if must_call else "wrote no text, twice"
        raise StageFailed(f"The language model {self._asked.model} {failure}. Ask it in other words.")


def thinker_info(config: StageConfig, options: ModelOptions, prepares: bool = True, leaving: str = "") -> StageInfo:
    """Describe such a thinker; ``leaving`` states which data leaves this machine."""
    sees: frozenset[Ability] = frozenset({"image"} if options.images else ())
    calls = kinds(ToolCallDelta, ToolCall) if options.tools else frozenset[str]()
    return StageInfo(
        takes=kinds(Transcript),
        emits=kinds(Text, Usage) | calls,
        feeds=kinds(VoiceText),
        answers=True,
        slots=config.slots,
        prepares=prepares,
        replay="never" if options.thinking else "continue",  # reasoning is not stored, but precedes every answer
        checkpoints=frozenset() if options.thinking else kinds(Text, Usage),
        facets=Facets(
            model=options.model,
            sees=sees,
            context=options.context,
            leaving=leaving,
            summarizes=True,
            writes_json=True,
        ),
    )


@dataclass(slots=True, eq=False)
class _Warming:
    """A prefill of a prompt's beginning before its request arrives, in its own task."""

    body: Mapping[str, Any]
    task: asyncio.Task[Any]
    over: asyncio.Event = field(default_factory=asyncio.Event)


async def _said(inputs: AsyncIterator[Chunk]) -> TextPart:
    """Return the user's words once they have finished; empty if they were not understood."""
    text = ""
    async for chunk in inputs:
        if isinstance(chunk, Transcript) and chunk.final and chunk.understood:
            text = chunk.text
    return TextPart(text)


def _as_it_stands(text: str) -> tuple[Chunk, ...]:
    """Return a fixed answer."""
    return Text(text, 0), VoiceText(text, 0), Usage()
