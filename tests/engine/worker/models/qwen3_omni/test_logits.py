"""What is drawn from, under forced tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import Engine, EngineSpec, Sampling
from engine.worker.nn import predictor
from engine.worker.omni import thinker_net
from engine.worker.talker import net as talker_net
from tests.engine.worker.models.qwen3_omni.cases import PROMPTS, Folder, Reference
from tests.engine.worker.models.qwen3_omni.variants import variant
from tests.oracles.qwen3_omni import Answer, Turn
from tests.oracles.talk import Said, ask, request, spec


async def forced(
    answer: Answer, turns: list[Turn], spec: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> tuple[Said, dict[int, int], dict[int, float]]:
    """Answer with the reference's tokens; for each stage how many were drawn, and the farthest that a logit was off."""
    theirs = {0: list(answer.thoughts.text), 1: list(answer.thoughts.codes), 2: list(answer.thoughts.residual)}
    tokens = {0: list(answer.ids), 1: answer.codes[:, 0].tolist(), 2: answer.codes[:, 1:].flatten().tolist()}
    counted, worst = dict.fromkeys(theirs, 0), dict.fromkeys(theirs, 0.0)

    def force(logits: Any, draws: Any, stage: int, *more: Any) -> Any:
        wanted = theirs[stage].pop(0)
        finite = wanted.isfinite()
        assert finite.equal(logits[0].isfinite())
        worst[stage] = max(worst[stage], float((logits[0] - wanted)[finite].abs().max()))
        counted[stage] += 1
        return torch.tensor([tokens[stage].pop(0)])

    monkeypatch.setattr(thinker_net, "draw", force)
    monkeypatch.setattr(talker_net, "draw", force)
    monkeypatch.setattr(predictor, "draw", force)
    async with Engine(spec) as engine:
        frames, groups = answer.codes.shape
        said = await ask(engine, request("t", turns, len(answer.ids), frames, sampling=Sampling(temperature=0.9)))
    assert said.ids == answer.ids
    assert counted == {0: len(answer.ids), 1: frames, 2: frames * (groups - 1)}
    return said, counted, worst


@pytest.mark.parametrize("name", ["plain", "wide"])
async def test_logits_under_forced_tokens_are_the_references(
    name: str, checkpoint: Folder, oracle: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is drawn from, with penalty and suppression, at every step of every stage."""
    turns = PROMPTS["audio and image"]
    *_, worst = await forced(oracle(name).answer(turns, 8, 12), turns, spec(checkpoint(name)), monkeypatch)
    print(f"{name}: logits of tokens within {worst[0]:.1e}, of codes within {max(worst[1], worst[2]):.1e}")
    assert max(worst.values()) <= 1e-4, worst


async def test_another_penalty_would_show(
    checkpoint: Folder, oracle: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above."""
    turns = PROMPTS["text"]
    folder = variant(checkpoint("plain"), tmp_path / "v", generation_config={"talker_repetition_penalty": 1.1})
    *_, worst = await forced(oracle("plain").answer(turns, 3, 5), turns, spec(folder), monkeypatch)
    assert worst[1] > 1e-3


async def test_bfloat16_stays_near_the_reference(
    checkpoint: Folder, oracle: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight bits of mantissa: some hundredths of logits whose spread is about one."""
    turns = PROMPTS["audio and image"]
    answer = oracle("plain").answer(turns, 8, 12)
    half = spec(checkpoint("plain"))
    half = replace(half, workers=tuple(replace(worker, dtype="bfloat16") for worker in half.workers))
    said, _, worst = await forced(answer, turns, half, monkeypatch)
    heard = oracle("plain").sound(said.codes)
    assert 1e-4 < max(worst.values()) <= 0.1, worst
    assert np.abs(said.wave - heard).max() <= 1e-4, "the sound is made in float32"
