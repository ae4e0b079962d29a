"""Qwen3-Omni's talker goes on where a lost replica was: the frames that were spoken are prefilled, not drawn again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, EngineSpec, Sampling, WorkerSpec
from engine.chunk import Audio, Chunk, Codes
from engine.delivered import RecoveryLog
from engine.deployment.config import ChunkSpec, HeartbeatSpec
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.stage_request import StageRequest
from tests.oracles.qwen3_omni import Turn
from tests.oracles.talk import request

TURNS: list[Turn] = [("user", ["Hello, how are you today?"])]
FRAMES, LOST_AFTER = 48, 40


def spec(folder: Path) -> EngineSpec:
    workers = (WorkerSpec(stages=("thinker",)), WorkerSpec(stages=("talker", "code2wav"), replicas=2))
    chunks = ChunkSpec(first=1, growth=1.5, steady=4)
    options = {"context": 512, "piece": 16}
    return EngineSpec(
        model="qwen3_omni", workers=workers, weights=str(folder), chunks=chunks, launcher="inline", options=options,
        heartbeat=HeartbeatSpec(interval_s=1.0, timeout_s=60.0),
    )  # fmt: skip


async def said(engine: Engine, lost: bool) -> tuple[list[list[int]], np.ndarray]:
    """The frames and the sound of an answer, in which the voice's replica is lost when most of it has been given."""
    codes, waves = list[list[int]](), list[np.ndarray]()
    asked = request("t", TURNS, 30, FRAMES, sampling=Sampling(temperature=0.9, seed=1))
    async with engine.open(asked) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Codes):
                codes += chunk.frames.tolist()
            elif isinstance(chunk, Audio):
                waves.append(chunk.wave)
                if lost and len(codes) >= LOST_AFTER:
                    lost = False
                    lose(engine)
    assert not lost
    return codes, np.concatenate(waves)


def lose(engine: Engine) -> None:
    pool = engine._fleet.pools["talker"]
    next(member for member in pool.members() if member.leases).replica.host.fence()


def drawn(patch: pytest.MonkeyPatch) -> list[int]:
    """How many frames each step has drawn."""
    counts: list[int] = []
    framed = Talker._framed

    def counting(self: Any, reqs: Sequence[StageRequest], frames: Any) -> Any:
        counts.append(len(reqs))
        return framed(self, reqs, frames)

    patch.setattr(Talker, "_framed", counting)
    return counts


@pytest.mark.seed("A4.16")
async def test_frames_that_were_spoken_are_prefilled(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = drawn(monkeypatch)
    async with Engine(spec(checkpoint("plain"))) as engine:
        codes, wave = await said(engine, lost=False)
        whole = sum(counts)
        again, other = await said(engine, lost=True)
    assert again == codes
    assert wave.shape == other.shape
    assert np.abs(wave - other).max() <= 1e-4
    assert sum(counts) - 2 * whole <= 30, "what lies between the last state and the loss"


async def test_without_what_was_left_they_are_all_drawn_again(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above."""
    monkeypatch.setattr(RecoveryLog, "chunks", lambda self: tuple[Chunk, ...]())
    counts = drawn(monkeypatch)
    async with Engine(spec(checkpoint("plain"))) as engine:
        codes, _ = await said(engine, lost=False)
        whole = sum(counts)
        again, _ = await said(engine, lost=True)
    assert again == codes
    assert sum(counts) - 2 * whole >= LOST_AFTER
