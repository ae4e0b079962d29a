"""A thinker whose model runs in its worker: made, asked, and let go of."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from engine import Request
from engine.chunk import Chunk, Output, Text
from engine.stream import of
from engine.worker.llm.local import LocalThinker
from engine.worker.stage import StageConfig
from tests.engine.fakes import only

T = TypeVar("T", bound=LocalThinker)


def config(weights: Path | None, slots: int = 2, device: str = "cpu", **options: Any) -> StageConfig:
    return StageConfig(weights=weights, slots=slots, device=device, options={"instructions_suffix": "", **options})


@asynccontextmanager
async def loaded(make: Callable[[StageConfig], T], asked: StageConfig) -> AsyncGenerator[T]:
    stage = make(asked)
    try:
        yield stage
    finally:
        await stage.aclose()


async def read(stage: LocalThinker, asked: Request) -> list[Chunk]:
    return [chunk async for chunk in stage.answer(asked, of(()))]


def written(chunks: Sequence[Chunk | Output]) -> str:
    return "".join(chunk.text for chunk in only(Text, chunks))
