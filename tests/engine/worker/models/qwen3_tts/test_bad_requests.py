"""Qwen3-TTS: a bad request among texts that it speaks ends alone, and random ones change none of those."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from engine import Engine, EngineSpec, Request, load_config
from engine.worker.uses import stage_type
from tests.contracts.bad_stage_requests import BAD, Breaking, Moment, random_among_good
from tests.engine.worker.models.qwen3_tts.test_deployments import CONFIGS, Folder, said, told
from tests.oracles.qwen3_tts import BIG

SAME = 1e-4


@dataclass(slots=True)
class Got:
    """An answer that can be compared."""

    codes: list[list[int]]
    wave: Any

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Got)
        alike = self.codes == other.codes and self.wave.shape == other.wave.shape
        return alike and bool(np.abs(self.wave - other.wave).max(initial=0) < SAME)


async def whole(engine: Engine, request: Request) -> Got:
    asyncio.get_running_loop().set_debug(False)
    codes, wave, _ = await said(engine, request)
    return Got(codes, wave)


def inline(checkpoint: Folder) -> EngineSpec:
    return replace(load_config(CONFIGS / "qwen3_tts_tiny.yaml"), weights=str(checkpoint(BIG)), launcher="inline")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("stage", ["talker", "code2wav"])
async def test_a_step_that_breaks_costs_only_who_broke_it(
    stage: str, moment: Moment, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [told(id=f"good{number}", max_audio_s=0.4) for number in range(3)]
    async with Engine(inline(checkpoint)) as engine:
        breaking = Breaking(monkeypatch, stage_type(f"qwen3_tts.{stage}"), moment, 2)
        await breaking.one_among_good(engine, whole, good, told(id=BAD, max_audio_s=0.4))


@pytest.mark.parametrize("count", [6, pytest.param(1000, marks=pytest.mark.soak)])
async def test_random_bad_requests_change_no_good_answer(count: int, checkpoint: Folder) -> None:
    good = [told(id=f"good{number}", max_audio_s=0.24) for number in range(7 if count > 100 else 2)]
    async with Engine(inline(checkpoint)) as engine:
        assert await random_among_good(engine, whole, good, count) >= 2
