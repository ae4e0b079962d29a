"""A thinker that uses a remote chat completions server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from engine.chunk import Text
from engine.core import StageInfo
from engine.deployment.did_you_mean import nearest
from engine.deployment.llm_urls import ANY_MODEL, leaving
from engine.errors import StageFailed
from engine.worker.llm.client import ChatClient
from engine.worker.llm.continuing import SERVERS, continued, goes_on, rest
from engine.worker.llm.deltas import Delta
from engine.worker.llm.options import ChatServerOptions, options_of
from engine.worker.llm.thinker import ChatThinker, thinker_info
from engine.worker.remote.connection import SOON_S
from engine.worker.remote.watch import Watch
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest


class OpenAiLlmStage(ChatThinker):
    """The stage.

    A server's answers differ each time. So an interrupted answer is only continued if the server supports that;
    otherwise it fails.
    """

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options = options_of(config.options)
        leaves = leaving(options.url, images=options.images, audio=options.audio)
        return thinker_info(config, options, options.prepares, leaves)

    def __init__(self, config: StageConfig, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._options = options_of(config.options)
        super().__init__(config, self._options)
        # a busy server's wait would delay the next model of its chain
        self._client = ChatClient(self._options, longest_wait_s=0.0 if config.may_decline else SOON_S)
        self.server = self._watch = Watch(self._options.who, self._probe, sleep)
        self._owner: str | None = None  # identifies the kind of server; None before the first contact

    def open(self, req: StageRequest) -> None:
        req.stored = self._owner is None or self._owner in SERVERS

    async def ask(self, body: Mapping[str, Any], name: str, begun: bool = False) -> AsyncGenerator[Delta]:
        with self._watch.asking():
            async with aclosing(self._client.answer(body, name, begun)) as deltas:
                async for delta in deltas:
                    self._watch.answered()
                    yield delta

    async def go_on(self, body: Mapping[str, Any], name: str, written: Sequence[Text]) -> AsyncGenerator[Delta]:
        asked = continued(body, written)
        owner = (await self._client.probe()).owner
        if not await goes_on(self._client, owner, asked):
            raise StageFailed(
                f"{self._options.who} cannot continue an interrupted answer: the rest of the answer is lost. Try again."
            )
        async with aclosing(self.ask(asked, name, begun=True)) as deltas, aclosing(rest(deltas, written)) as placed:
            async for delta in placed:
                yield delta

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _probe(self) -> str:
        models = await self._client.probe()
        self._owner = models.owner
        return _missing(self._options, models.names)


STAGE = OpenAiLlmStage


def _missing(options: ChatServerOptions, names: Sequence[str]) -> str:
    """Explain why a server with these models cannot answer. Empty if it can, or if the server lists no models."""
    if not names or options.model == ANY_MODEL or {options.model, f"{options.model}:latest"} & {*names}:
        return ""
    return f"{options.who} has no model {options.model!r} ({nearest(options.model, names)})."
