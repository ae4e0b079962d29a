"""Code that the thinkers share whose language model runs in the worker itself: places for answers, reading ahead in
those that are free, and how long an answer is waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

from engine.chunk import Text
from engine.core import Request
from engine.errors import WeightsError
from engine.worker.llm.continuing import continued, rest
from engine.worker.llm.decoder import ChatStreamDecoder
from engine.worker.llm.deltas import Delta
from engine.worker.llm.messages import texts_of
from engine.worker.llm.options import ModelOptions
from engine.worker.llm.refusals import error_of_model
from engine.worker.llm.thinker import ChatThinker
from engine.worker.remote.patience import Patience
from engine.worker.remote.refusals import ServerRefusal
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest


class LocalModel(Protocol):
    """A language model that is loaded, in this process or in one of its own."""

    @property
    def broken(self) -> bool:
        """Whether it is gone for good, and its worker about to end."""
        ...

    def events(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[str]:
        """The events of a chat completion, as JSON. To close this generator aborts it, and so does cancelling.

        ``name`` is the request's. Raises Refusal or RequestError.
        """
        ...

    async def aclose(self) -> None:
        """Abort what is under way, and let go of the model."""
        ...


class LocalThinker(ChatThinker):
    """Base of such thinkers.

    An answer whose worker was lost goes on behind its words, and is not begun anew: what is computed together with
    others differs in the last digits, and so may the words.
    """

    def __init__(
        self, config: StageConfig, options: ModelOptions, model: LocalModel, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(config, options)
        self._model = model
        self._now = now
        self._answering = 0

    @property
    def free(self) -> int:
        """Return how many more answers could begin now."""
        return max(0, self.info.slots - self._answering)

    def open(self, req: StageRequest) -> None:
        """Take a place for an answer: where none is free, a prompt that is read ahead for another user gives its own
        up."""
        others = [warming for session, warming in self._warming.items() if session != req.request.session]
        if others and not self.free:
            others[0].task.cancel()

    async def prepare(self, request: Request) -> None:
        """Read a prompt ahead in a place that nobody needs now, or not at all."""
        if self.free:
            await super().prepare(request)

    async def ask(self, body: Mapping[str, Any], name: str, begun: bool = False) -> AsyncGenerator[Delta]:
        options = self._asked
        who = f"The language model {options.model}"
        patience = Patience(options.first_token_s, options.stall_s, who, self._now)
        decoder = ChatStreamDecoder(name, begun)
        self._answering += 1
        try:
            async with aclosing(self._model.events(body, name)) as events:
                while (event := await patience.wait(anext(events, None))) is not None:
                    patience.progress()
                    for delta in decoder.feed(event):
                        yield delta
            for delta in decoder.end():
                yield delta
        except ServerRefusal as refusal:
            if self._model.broken:
                await asyncio.Event().wait()  # the worker ends, and the answer goes on in another one
            raise error_of_model(refusal, options.model, texts_of(body)) from None
        finally:
            self._answering -= 1

    async def go_on(self, body: Mapping[str, Any], name: str, written: Sequence[Text]) -> AsyncGenerator[Delta]:
        asked = continued(body, written)
        async with aclosing(self.ask(asked, name, begun=True)) as deltas, aclosing(rest(deltas, written)) as placed:
            async for delta in placed:
                yield delta

    async def aclose(self) -> None:
        await self._model.aclose()


def check_memory(model: Path, weights: int, cache: int, conversations: str) -> None:
    """Refuse a model for which this machine has too little memory, before it swaps: so many bytes for its weights, and
    for keys and values of its conversations. Raises WeightsError."""
    import psutil  # the environment of a library's own may lack it until the library is there

    available = psutil.virtual_memory().available
    if weights + cache > available:
        raise WeightsError(
            f"{model}: needs {(weights + cache) / 1e9:.1f} GB of memory ({weights / 1e9:.1f} for the weights, the rest "
            f"for {conversations}), and {available / 1e9:.1f} are free. Take a smaller or quantized model, or lower "
            "the stage's max_batch or options.context."
        )
