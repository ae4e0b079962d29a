"""A duplex model behind the engine's door: its description, what it refuses, and what a lost worker costs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import (
    Audio,
    ConfigError,
    Duplex,
    Engine,
    EngineSpec,
    Message,
    Overloaded,
    ReplicaLost,
    Request,
    RequestError,
    Speech,
    TextPart,
    WorkerSpec,
    describe,
    parse_config,
)
from engine.chunk import Chunk
from engine.core import AudioPart
from engine.worker.process import duplex_capacity
from tests.engine.fakes import until, whole

FRAME = 1920


def spec(slots: int = 4, replicas: int = 1) -> EngineSpec:
    workers = (WorkerSpec(stages=("duplex",), replicas=replicas, max_batch=slots),)
    return replace(EngineSpec(model="script_duplex", workers=workers, launcher="inline"))


@pytest.fixture(autouse=True)
def as_fast_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of sessions must not depend on this machine."""
    monkeypatch.setattr(duplex_capacity, "_step_s", lambda stage, duplex, size, clock: 0.001)


def session(id: str = "r", messages: tuple[Message, ...] = (), live: bool = True, say: str | None = None) -> Request:
    return Request(id=id, session=id, messages=messages, live=live, say=say, max_audio_s=math.inf)


async def microphone(frames: int = 1 << 30) -> AsyncGenerator[Chunk]:
    """Some frames at once; then, without an end, nothing."""
    for _ in range(min(frames, 3)):
        yield Speech(np.full(FRAME, 3000, np.int16))
    if frames > 3:
        await asyncio.Event().wait()


def test_the_description_says_that_it_is_a_duplex_model() -> None:
    model = describe(spec())
    assert model.duplex == Duplex(frame_s=0.08, rate_hz=24_000)
    assert model.abilities == {"audio", "speech"}
    assert describe(EngineSpec(model="script")).duplex is None


def test_a_duplex_stage_has_no_neighbours() -> None:
    with pytest.raises(ConfigError, match="duplex listens and speaks itself, so it must be the only stage"):
        describe(parse_config("stages: [{use: script_duplex.duplex}, {use: script.thinker}]"))


async def test_a_session_ends_with_its_sound() -> None:
    async with Engine(spec()) as engine, engine.open(session(), microphone(3)) as chunks:
        audio = [chunk async for chunk in chunks if isinstance(chunk, Audio)]
        assert [chunk.frame for chunk in audio] == [0, 1, 2]
        assert all(len(chunk.wave) == FRAME for chunk in audio)


async def test_more_sessions_than_fit_are_refused_at_once() -> None:
    async with Engine(spec(slots=1)) as engine, engine.open(session("a"), microphone()) as first:
        assert isinstance(await anext(first), Audio)
        assert engine.slots(session()) == {"duplex": 1}
        async with engine.open(session("b"), microphone()) as second:
            with pytest.raises(Overloaded, match="All 1 sessions that duplex can hold are in use"):
                await anext(second)
        assert isinstance(await anext(first), Audio)


TYPED = (Message("user", (TextPart("hello"),)),)
RECORDED = (Message("user", (AudioPart(np.zeros(16_000, np.int16)),)),)


@pytest.mark.parametrize(
    "fields",
    [{"live": False, "messages": TYPED}, {"live": False, "messages": RECORDED}, {"say": "hello"}],
)
async def test_what_is_not_live_is_refused(fields: dict[str, Any]) -> None:
    async with Engine(spec()) as engine, engine.open(session(**fields)) as chunks:
        with pytest.raises(RequestError):
            await anext(chunks)


async def test_a_lost_worker_ends_its_sessions_once_and_no_others() -> None:
    async with (
        Engine(spec(slots=1, replicas=2)) as engine,
        engine.open(session("a"), microphone()) as one,
        engine.open(session("b"), microphone()) as other,
    ):
        assert isinstance(await anext(one), Audio)
        assert isinstance(await anext(other), Audio)
        next(iter(one.hosts)).host.fence()
        with pytest.raises(ReplicaLost):
            await whole(one)
        assert isinstance(await anext(other), Audio)
        assert isinstance(await anext(other), Audio)


async def test_the_counts_are_with_the_replica() -> None:
    async with Engine(spec()) as engine, engine.open(session(), microphone()) as chunks:
        async for _ in chunks:
            if (counts := engine.replicas()[0].duplex) and counts.concealed:
                assert counts.frames > counts.concealed
                break


async def test_a_session_keeps_nothing_of_what_it_was_fed() -> None:
    async with Engine(spec()) as engine, engine.open(session(), microphone()) as chunks:
        assert isinstance(await anext(chunks), Audio)
        host = next(iter(chunks.hosts)).host
        (run,) = host._runs.values()
        await until(lambda: run.room < 64)
        assert run.inputs._kept == []
