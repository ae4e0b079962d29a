"""Prompts are made off the event loop: few of the short ones at once, and those that take long beside them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from engine import AudioPart, Message, Request
from engine.chunk import Chunk
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.omni.prompter import FEW, SHORT_S, Prompter
from engine.worker.stage import StageConfig
from tests.engine.fakes import until
from tests.engine.worker.models.qwen3_omni.cases import Folder


def spoken(id: str, seconds: float) -> Request:
    pcm = np.zeros(int(seconds * 16_000), np.int16)
    return Request(id=id, session=id, messages=(Message("user", (AudioPart(pcm),)),))


async def nothing() -> AsyncIterator[Chunk]:
    return
    yield


async def test_few_short_prompts_are_made_at_once_and_a_long_one_waits_for_none(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompter = Prompter(Qwen3OmniSource(StageConfig(checkpoint("plain"))))
    going, begun, lock = threading.Event(), list[str](), threading.Lock()

    def draft(request: Request) -> Any:
        with lock:
            begun.append(request.id)
        assert going.wait(10)

    monkeypatch.setattr(prompter, "draft", draft)
    monkeypatch.setattr(prompter, "prompt", lambda _: "made")

    async def made(request: Request) -> list[Any]:
        return [prompt async for prompt in prompter.prompts(request, nothing())]

    async with asyncio.TaskGroup() as group:
        short = [group.create_task(made(spoken(f"short{i}", 1.0))) for i in range(2 * FEW)]
        await until(lambda: len(begun) >= FEW)
        long = group.create_task(made(spoken("long", SHORT_S + 1)))
        await until(lambda: "long" in begun)
        assert len(begun) == FEW + 1
        going.set()
    assert [task.result() for task in (*short, long)] == [["made"]] * (2 * FEW + 1)
