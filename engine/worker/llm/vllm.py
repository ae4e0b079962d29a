"""A language model that vLLM runs for this worker: a checkpoint that answers chat completions, many at a time.

Knows no stage and no request of the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from itertools import count
from typing import Any, Protocol

from engine.errors import RequestError
from engine.worker.llm.decoder import Decoder
from engine.worker.llm.deltas import Delta
from engine.worker.llm.messages import texts_of
from engine.worker.llm.refusals import error_of_model
from engine.worker.llm.vllm_engine import VllmEngine, VllmSettings
from engine.worker.remote.patience import Patience
from engine.worker.remote.refusals import Refusal
from engine.worker.streamed import Broken


class ChatEngine(Protocol):
    """What a model's answers come from: ``VllmEngine``."""

    @property
    def broken(self) -> bool: ...

    def complete(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[str]: ...

    async def over(self) -> None: ...

    async def aclose(self) -> None: ...


class Vllm:
    """A model that is loaded. Needs ``aclose`` at the end. Raises ConfigError or WeightsError."""

    def __init__(
        self, settings: VllmSettings, now: Callable[[], float] = time.monotonic,
        load: Callable[[VllmSettings], ChatEngine] = VllmEngine,
    ) -> None:  # fmt: skip
        self._settings, self._now = settings, now
        self._engine = load(settings)
        self._under_way, self._count = 0, count()

    @property
    def free(self) -> int:
        """How many more answers could begin at once."""
        return max(0, self._settings.slots - self._under_way)

    async def answer(self, body: Mapping[str, Any], name: str, begun: bool = False) -> AsyncGenerator[Delta]:
        """The answer to a chat completion's body; its Usage is last. To close this generator aborts the answer.

        ``name`` begins the ids of tool calls that the model gives none. With ``begun``, the body ends with a beginning
        of the answer, behind which there may be no more. Raises one EngineError.
        """
        settings = self._settings
        patience = Patience(settings.first_token_s, settings.stall_s, f"The language model {settings.name}", self._now)
        decoder, asked = Decoder(name, begun), self._asked(body)
        self._under_way += 1
        try:
            async with aclosing(self._engine.complete(asked, f"{name}-{next(self._count)}")) as events:
                while (event := await patience.wait(anext(events, None))) is not None:
                    patience.progress()
                    for delta in decoder.feed(event):
                        yield delta
            for delta in decoder.end():
                yield delta
        except Refusal as refusal:
            if self._engine.broken:
                await asyncio.Event().wait()  # the worker ends, and the answer goes on in another one
            raise error_of_model(refusal, settings.name, texts_of(body)) from None
        finally:
            self._under_way -= 1

    async def watch(self) -> None:
        """Raises Broken once the engine is of no use any more."""
        await self._engine.over()
        raise Broken(f"vLLM's engine, which runs {self._settings.name}, has ended")

    async def aclose(self) -> None:
        """Abort what is under way, and let go of the model."""
        await self._engine.aclose()

    def _asked(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A body as vLLM takes it. Raises RequestError."""
        settings = self._settings
        if body.get("tools") and body.get("tool_choice") != "none" and settings.tool_parser is None:
            raise RequestError(
                f"{settings.name} cannot call functions here: its template shows none of the ways that are known. Name "
                "one of vLLM's tool parsers as tool_parser in its options."
            )
        return {**body, "max_tokens": min(body["max_tokens"], settings.context)}
