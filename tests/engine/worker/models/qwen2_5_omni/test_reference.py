"""Qwen2.5-Omni through the whole engine: token for token, code for code as the reference; its sound from our noise.

Logits are compared at every step, too: greedy tokens of random checkpoints run in circles, logits do not.
"""

from __future__ import annotations

import pytest
import torch

from engine import Engine
from engine.worker.models.qwen2_5_omni.feed import Qwen2_5TalkerFeed
from engine.worker.models.qwen2_5_omni.positions import PairedPositions
from engine.worker.omni.positions import RopePositions
from tests.engine.worker.models.qwen2_5_omni.cases import (
    PROMPTS,
    Drawn,
    Folder,
    Reference,
    compare,
    drawn_from,
    farthest,
    request,
    spec,
)
from tests.engine.worker.models.qwen2_5_omni.conftest import SIZES
from tests.oracles.talk import ask

TOKENS, CODES = 8, 40


async def _compared(name: str, titles: list[str], checkpoint: Folder, oracle: Reference) -> Drawn:
    """The logits of the last title."""
    reference, tokens, codes = oracle(name), 0, 0
    drawn: Drawn = [], []
    async with Engine(spec(checkpoint(name), piece=40)) as engine:
        for title in titles:
            with drawn_from() as drawn:
                said = await ask(engine, request(title, PROMPTS[title], TOKENS, CODES))
            answer = reference.answer(PROMPTS[title], TOKENS, CODES)
            assert said.prompt == reference.inputs(PROMPTS[title])["input_ids"][0].tolist(), title
            compared = compare(said, answer)
            tokens, codes = tokens + compared[0], codes + compared[1]
            assert len(said.wave) == 480 * len(said.codes), title
    print(f"{name}: {tokens} tokens and {codes} codes of {len(titles)} answers are the reference's")
    assert tokens >= 4 * len(titles), "what is not compared proves nothing"
    assert codes >= 20 * len(titles), "a random checkpoint may stop early, but not always"
    return drawn


@pytest.mark.parametrize("title", PROMPTS)
async def test_the_engine_says_what_the_reference_says(title: str, checkpoint: Folder, oracle: Reference) -> None:
    drawn = await _compared("plain", [title], checkpoint, oracle)
    assert [len(ours) for ours in drawn] >= [TOKENS, 30]
    text, codes = farthest(drawn, oracle("plain").answer(PROMPTS[title], TOKENS, CODES))
    print(f"{title}: logits of tokens within {text:.1e}, of codes within {codes:.1e}")
    assert max(text, codes) <= 1e-4


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SIZES)
async def test_so_does_every_checkpoint(name: str, checkpoint: Folder, oracle: Reference) -> None:
    drawn = await _compared(name, list(PROMPTS), checkpoint, oracle)
    text, codes = farthest(drawn, oracle(name).answer(PROMPTS[list(PROMPTS)[-1]], TOKENS, CODES))
    print(f"{name}: logits of tokens within {text:.1e}, of codes within {codes:.1e}")
    assert max(text, codes) <= 1e-4


async def test_small_mistakes_would_show(
    checkpoint: Folder, oracle: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative controls: marks that share no position; pictures whose embeddings the talker hears."""

    async def off(title: str) -> tuple[float, float]:
        with drawn_from() as drawn:
            async with Engine(spec(checkpoint("plain"))) as engine:
                await ask(engine, request(title, PROMPTS[title], TOKENS, CODES))
        return farthest(drawn, oracle("plain").answer(PROMPTS[title], TOKENS, CODES))

    with monkeypatch.context() as patched:
        patched.setattr(PairedPositions, "text", RopePositions.text)
        assert min(await off("a video with its sound")) > 1e-3
    with monkeypatch.context() as patched:
        patched.setattr(Qwen2_5TalkerFeed, "hidden", lambda _self, pieces, hidden, _tapped: hidden + torch.cat(
            [one.req.state.embeddings[one.span] for one in pieces]))  # fmt: skip
        thinker, talker = await off("audio and image")
        assert thinker <= 1e-4 < 1e-3 < talker
