"""Base class of thinkers whose language model runs in the worker: free slots, prefetching and time limits."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

import msgspec

from engine.chunk import Text
from engine.core import Request
from engine.errors import RequestError, WeightsError
from engine.worker.llm.continuing import continued, rest
from engine.worker.llm.decoder import ChatStreamDecoder
from engine.worker.llm.deltas import Delta
from engine.worker.llm.grammar.compiler import GrammarCompiler
from engine.worker.llm.grammar.jobs import AnswerJob
from engine.worker.llm.messages import Body, texts_of
from engine.worker.llm.options import ModelOptions
from engine.worker.llm.refusals import error_of_model
from engine.worker.llm.schema_cost import check_schemas
from engine.worker.llm.special_tokens import breaker, broken_up
from engine.worker.llm.thinker import ChatThinker
from engine.worker.remote.patience import Patience
from engine.worker.remote.refusals import ServerRefusal
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest


class LocalModel(Protocol):
    """A language model that is loaded in this process or in its own processes."""

    @property
    def broken(self) -> bool:
        """Whether it has failed permanently, so that its worker is about to end."""
        ...

    def events(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[str]:
        """Yield the events of a chat completion as JSON. Closing or cancelling the generator aborts it.

        Only requests with the same ``cache_salt`` may share cached prompts, and count them as cached. ``name`` is the
        request's id. Raises ServerRefusal or RequestError.
        """
        ...

    async def aclose(self) -> None:
        """Abort all answers and unload the model."""
        ...


class LocalThinker(ChatThinker):
    """Base class of such thinkers.

    ``special_tokens`` are the model's tokens that texts of clients must not become.

    After a lost worker, an answer continues after its text instead of starting again, because batching changes the last
    digits and possibly the words.
    """

    def __init__(
        self,
        config: StageConfig,
        options: ModelOptions,
        model: LocalModel,
        special_tokens: Iterable[str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(config, options)
        self._model = model
        self._broken = breaker(special_tokens)
        self._now = now
        self._answering = 0
        self.grammars = GrammarCompiler()

    @property
    def free(self) -> int:
        """Number of answers that could start now."""
        return max(0, self.info.slots - self._answering)

    def open(self, req: StageRequest) -> None:
        """Take a slot. If none is free, cancel the prefetch of another session's prompt."""
        others = [warming for session, warming in self._warming.items() if session != req.request.session]
        if others and not self.free:
            others[0].task.cancel()

    def salted(self, body: Body, owner: str) -> Body:
        return {**body, "cache_salt": hashlib.sha256(owner.encode()).hexdigest()} if owner else body

    async def prepare(self, request: Request) -> None:
        """Prefetch a prompt if a slot is free."""
        if self.free:
            await super().prepare(request)

    async def ask(self, body: Mapping[str, Any], name: str, begun: bool = False) -> AsyncGenerator[Delta]:
        check_schemas(body)
        body = await self._constrained(body)
        async with aclosing(self.complete(broken_up(body, self._broken), name, begun)) as deltas:
            async for delta in deltas:
                yield delta

    async def _constrained(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the body with the grammar of its JSON format. The model cannot reason first, so that is disabled.

        Raises SchemaError, and RequestError for a format together with tools.
        """
        if "response_format" not in body:
            return body
        if body.get("tools") and body["tool_choice"] != "none":
            raise RequestError(
                "response_format: tools cannot be combined with an answer in JSON here. Leave one of them out, or set "
                "tool_choice to none."
            )
        format = body["response_format"]
        schema = format["json_schema"]["schema"] if format["type"] == "json_schema" else {"type": "object"}
        grammar = await self.grammars.compiled(AnswerJob(msgspec.json.encode(schema)))
        kept = {name: value for name, value in body.items() if name not in ("tools", "tool_choice")}
        return self.restricted({**kept, "chat_template_kwargs": {"enable_thinking": False}}, grammar)

    def restricted(self, body: Body, grammar: str) -> Body:
        """Return a body whose answer follows the grammar. Override this for a model that reads GBNF."""
        return body

    async def complete(self, body: Mapping[str, Any], name: str, begun: bool = False) -> AsyncGenerator[Delta]:
        """Yield the model's answer to a body that was checked. Override this to change the body."""
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
                await asyncio.Event().wait()  # the worker ends, and the answer continues in another one
            raise error_of_model(refusal, options.model, texts_of(body)) from None
        finally:
            self._answering -= 1

    async def go_on(self, body: Mapping[str, Any], name: str, written: Sequence[Text]) -> AsyncGenerator[Delta]:
        asked = continued(body, written)
        async with aclosing(self.ask(asked, name, begun=True)) as deltas, aclosing(rest(deltas, written)) as placed:
            async for delta in placed:
                yield delta

    async def aclose(self) -> None:
        await self.grammars.aclose()
        await self._model.aclose()


def check_memory(model: Path, weights: int, cache: int, conversations: str) -> None:
    """Raise WeightsError if this machine has too little free memory for the model.

    Args:
        model: The model's path.
        weights: Bytes of its weights.
        cache: Bytes of keys and values.
        conversations: Description of the conversations, for the message.
    """
    import psutil  # the environment of a library's own may lack it until the library is there

    available = psutil.virtual_memory().available
    if weights + cache > available:
        raise WeightsError(
            f"{model}: needs {(weights + cache) / 1e9:.1f} GB of memory ({weights / 1e9:.1f} for the weights, the rest "
            f"for {conversations}), but only {available / 1e9:.1f} GB are free. Use a smaller or quantized model, or "
            "lower the stage's max_batch or options.context."
        )
