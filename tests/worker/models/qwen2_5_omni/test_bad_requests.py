"""Qwen2.5-Omni: bad requests at random among good ones change none of those."""

from __future__ import annotations

import pytest

from engine import Engine
from tests.contracts.bad_stage_requests import random_among_good
from tests.worker.models.qwen2_5_omni.cases import PROMPTS, Folder, request, spec
from tests.worker.models.qwen3_omni.test_bad_stage_requests import whole

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("count", [6, pytest.param(1000, marks=pytest.mark.soak)])
async def test_random_bad_requests_change_no_good_answer(count: int, checkpoint: Folder) -> None:
    good = [request(f"good{number}", PROMPTS["text"], 3, 3) for number in range(7 if count > 100 else 2)]
    async with Engine(spec(checkpoint("plain"), slots=8)) as engine:
        assert await random_among_good(engine, whole, good, count) >= 2
