"""The scripted thinker as a model that can summarize, for tests of long conversations.

``recite`` answers with the whole prompt. Its ``options`` are the ``context`` in tokens, and its ``notes``: the summary
that it writes, ``fail`` to fail instead, or ``hang`` to write for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec

from engine.chunk import Chunk
from engine.core import Message, StageInfo, TextPart
from engine.worker.models.script import ScriptThinker
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

ASKED = "Pause the conversation"
"""The first words of the request for a summary."""


class NoteTaker(ScriptThinker):
    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        info = super().describe(config)
        facets = msgspec.structs.replace(info.facets, context=config.options["context"], summarizes=True)
        return msgspec.structs.replace(info, facets=facets, slots=1)

    def __init__(self, config: StageConfig) -> None:
        self._notes = str(config.options.get("notes", ""))
        super().__init__(config)

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        asked = texts_of(req.request.messages[-1:])
        if asked.startswith(ASKED):
            if self._notes == "hang":
                await asyncio.Event().wait()
            yield "fail" if self._notes == "fail" else f"say: {self._notes}"
        elif asked == "recite":
            yield f"say: {texts_of(req.request.messages)}"
        else:
            async for item in super().adapt(req, inputs):
                yield item


def texts_of(messages: tuple[Message, ...]) -> str:
    parts = [part for message in messages for part in message.parts]
    texts = (part.text if isinstance(part, TextPart) else getattr(part, "output", "") for part in parts)
    return "\n".join(texts)


STAGE = NoteTaker
