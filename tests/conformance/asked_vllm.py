"""The stage `llm.vllm`, with a door for a test: the engine behind it may be asked over a Unix socket."""

from __future__ import annotations

import asyncio
import json
import os
from itertools import accumulate
from typing import Any

from engine.chunk import Text
from engine.core import Message, Request, TextPart
from engine.stream import of
from engine.worker.stages.llm import vllm


class STAGE(vllm.VllmStage):
    async def watch(self) -> None:
        async with await asyncio.start_unix_server(self._ask, os.environ["PARLEY_TEST_VLLM_SOCKET"]):
            await super().watch()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = json.loads(await reader.readline())
        match question:
            case {"complete": body}:
                reply = await self._complete(body)
            case {"go_on": text, "behind": pieces}:
                reply = await self._go_on(text, pieces)
            case _:
                reply = await self._processing()
        writer.write(json.dumps(reply).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def _complete(self, body: dict[str, Any]) -> Any:
        inner: Any = self._vllm
        reply = await inner._chat.create_chat_completion(inner._request.model_validate(body))
        return reply.model_dump()

    async def _go_on(self, text: str, pieces: list[str]) -> list[str]:
        """The pieces of an answer, of which these were given where a worker was lost."""
        starts = accumulate(map(len, pieces), initial=0)
        kept = [Text(piece, start) for piece, start in zip(pieces, starts, strict=False)]
        asked = Request(id="r", session="s", messages=(Message("user", (TextPart(text),)),))
        return [chunk.text async for chunk in self.answer(asked, of(()), kept) if isinstance(chunk, Text)]

    async def _processing(self) -> int:
        """By vLLM's front, and where that has none, by its engine: it resets its cache only while nobody uses it."""
        engine: Any = self._vllm._engine
        return engine.get_num_unfinished_requests() or int(not await engine.reset_prefix_cache())
