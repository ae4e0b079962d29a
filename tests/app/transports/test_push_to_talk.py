"""Many who hold their keys, and one who does not: a real engine with few slots behind a real server."""

from __future__ import annotations

import dataclasses
from contextlib import AsyncExitStack

import pytest

from engine.control import pool
from tests.app.rig import Client, LoudnessVad, Running, eventually, running, script_spec, silence, talking, tone

HOLDERS, SLOTS = 40, 4


@pytest.fixture
async def server():
    spec = script_spec()
    worker = dataclasses.replace(spec.workers[0], max_batch=SLOTS)
    async with running(dataclasses.replace(spec, workers=(worker,)), vad=LoudnessVad) as server:
        yield server


async def holding(server: Running, stack: AsyncExitStack) -> Client:
    client = await stack.enter_async_context(talking(server))
    await client.configure(audio={"input": {"turn_detection": None}})
    await client.append(tone(0.5))
    return client


def leased(server: Running) -> int:
    engine = server.service.engine_host.engine
    assert engine is not None
    return engine.stats()["ears"]["leased"]


async def test_forty_held_keys_keep_nobody_from_an_answer(server: Running) -> None:
    async with AsyncExitStack() as stack:
        holders = [await holding(server, stack) for _ in range(HOLDERS)]
        await eventually(lambda: leased(server) == SLOTS)
        free_handed = await stack.enter_async_context(talking(server))
        await free_handed.append(tone(0.5))
        await free_handed.append(silence(0.8))
        assert (await free_handed.until("response.done"))["response"]["status"] == "completed"
        for holder in (holders[0], holders[-1]):  # whose request was given up, and one that never had any
            await holder.send("input_audio_buffer.commit")
            await holder.send("response.create")
            assert (await holder.until("response.done"))["response"]["status"] == "completed"
            assert not holder.of("error")


async def test_without_preemption_they_would(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above can fail."""
    monkeypatch.setattr(pool.StagePool, "_preempt", lambda self: None)
    async with AsyncExitStack() as stack:
        for _ in range(SLOTS):
            await holding(server, stack)
        await eventually(lambda: leased(server) == SLOTS)
        free_handed = await stack.enter_async_context(talking(server))
        await free_handed.append(tone(0.5))
        await free_handed.append(silence(0.8))
        await free_handed.until("response.created")
        engine = server.service.engine_host.engine
        assert engine is not None
        assert engine.stats()["ears"]["waiting"] == 1
