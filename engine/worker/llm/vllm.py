"""A language model that vLLM runs for this worker: a checkpoint that answers chat completions, many at a time.

Knows no stage and no request of the engine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from itertools import count
from typing import Any, Protocol

from engine.errors import RequestError
from engine.worker.llm.vllm_engine import VllmEngine, VllmSettings
from engine.worker.streamed import Broken


class ChatEngine(Protocol):
    """The engine that a model's answers come from: ``VllmEngine``."""

    @property
    def broken(self) -> bool: ...

    def complete(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[str]: ...

    async def over(self) -> None: ...

    async def aclose(self) -> None: ...


class Vllm:
    """A model that is loaded. Needs ``aclose`` at the end. Raises ConfigError or WeightsError."""

    def __init__(self, settings: VllmSettings, load: Callable[[VllmSettings], ChatEngine] = VllmEngine) -> None:
        self._settings = settings
        self._engine = load(settings)
        self._under_way = 0
        self._count = count()

    @property
    def free(self) -> int:
        """Return how many more answers could begin at once."""
        return max(0, self._settings.slots - self._under_way)

    @property
    def broken(self) -> bool:
        """Whether the engine has ended, as ``watch`` tells."""
        return self._engine.broken

    async def events(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[str]:
        """The events of a chat completion, as JSON. To close this generator aborts it, and so does cancelling.

        ``name`` begins that by which vLLM knows it. Raises Refusal or RequestError.
        """
        asked = self._asked(body)
        self._under_way += 1
        try:
            async with aclosing(self._engine.complete(asked, f"{name}-{next(self._count)}")) as events:
                async for event in events:
                    yield event
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
