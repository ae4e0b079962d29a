"""What the thinkers share whose language model runs in the worker itself: places for answers, and reading ahead in
those that are free."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from engine.chunk import Text, ToolCall, ToolCallDelta, Transcript, Usage, VoiceText, kinds
from engine.core import Ability, Facets, Request, StageInfo
from engine.worker.llm.continuing import continued, rest
from engine.worker.llm.deltas import Delta
from engine.worker.llm.options import ModelOptions
from engine.worker.llm.thinker import ChatThinker
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest


class LocalModel(Protocol):
    """A language model in this process, or in one of its own."""

    @property
    def free(self) -> int:
        """How many more answers could begin at once."""
        ...

    def answer(self, body: Mapping[str, Any], name: str, begun: bool = False) -> AsyncGenerator[Delta]:
        """The answer to a chat completion's body; its Usage is last. To close this generator aborts the answer.

        ``name`` begins the ids of tool calls that the model gives none. With ``begun``, the body ends with a beginning
        of the answer, behind which there may be no more. Raises one EngineError.
        """
        ...

    async def aclose(self) -> None:
        """Abort what is under way, and let go of the model."""
        ...


class LocalThinker(ChatThinker):
    """Base of such thinkers.

    An answer whose worker was lost is gone on with behind its words, and not begun anew: what is computed together with
    others differs in the last digits, and so may the words.
    """

    def __init__(self, config: StageConfig, options: ModelOptions, model: LocalModel) -> None:
        super().__init__(config, options)
        self._model = model

    def open(self, req: StageRequest) -> None:
        """An answer needs a place: where there is none, what is read ahead for somebody else gives its own up."""
        others = [warming for session, warming in self._warming.items() if session != req.request.session]
        if others and not self._model.free:
            others[0].task.cancel()

    async def prepare(self, request: Request) -> None:
        """In a place that nobody needs now, or not at all."""
        if self._model.free:
            await super().prepare(request)

    async def ask(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[Delta]:
        async with aclosing(self._model.answer(body, name)) as deltas:
            async for delta in deltas:
                yield delta

    async def go_on(self, body: Mapping[str, Any], name: str, written: Sequence[Text]) -> AsyncGenerator[Delta]:
        asked = continued(body, written)
        async with (
            aclosing(self._model.answer(asked, name, begun=True)) as deltas,
            aclosing(rest(deltas, written)) as placed,
        ):
            async for delta in placed:
                yield delta

    async def aclose(self) -> None:
        await self._model.aclose()


def info_of(config: StageConfig, options: ModelOptions) -> StageInfo:
    """What such a thinker says of itself."""
    sees: frozenset[Ability] = frozenset({"image"} if options.images else ())
    return StageInfo(
        takes=kinds(Transcript), emits=kinds(Text, ToolCallDelta, ToolCall, Usage), feeds=kinds(VoiceText),
        answers=True, slots=config.slots, prepares=True,
        replay="never" if options.thinking else "continue",  # its thoughts are not kept, and go before every answer
        checkpoints=frozenset() if options.thinking else kinds(Text, Usage),
        facets=Facets(model=options.model, sees=sees, context=options.context),
    )  # fmt: skip
