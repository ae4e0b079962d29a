"""Stages of Qwen2.5-Omni in processes of their own: what one makes crosses to the next as bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine import Engine, WorkerSpec
from tests.engine.worker.models.qwen2_5_omni.cases import PROMPTS, Folder, Reference, compare, request, spec
from tests.oracles.talk import ask


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_two_workers_in_processes_of_their_own_say_what_the_reference_says(
    checkpoint: Folder, oracle: Reference
) -> None:
    turns = PROMPTS["audio and image"]
    workers = tuple(WorkerSpec(stages=stages, max_batch=2) for stages in (("thinker",), ("talker", "code2wav")))
    async with Engine(replace(spec(checkpoint("plain")), workers=workers, launcher="local")) as engine:
        said = await ask(engine, request("t", turns, 8, 40))
    tokens, codes = compare(said, oracle("plain").answer(turns, 8, 40))
    assert tokens >= 4
    assert codes >= 20
    assert len(said.wave) == 480 * len(said.codes)
