"""What tokens and codes are drawn from, at every step: greedy tokens of random checkpoints run in circles, logits do
not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine import Engine
from engine.worker.models.qwen2_5_omni.feed import Feed
from engine.worker.models.qwen2_5_omni.positions import PairedPositions
from engine.worker.omni import thinker_net
from engine.worker.omni.positions import RopePositions
from engine.worker.talker import net as talker_net
from tests.oracles.talk import ask
from tests.worker.models.qwen2_5_omni.cases import PROMPTS, Folder, Reference, request, spec


async def worst(
    title: str, checkpoint: Folder, oracle: Reference, monkeypatch: pytest.MonkeyPatch
) -> tuple[float, float]:
    """The farthest that a logit of the thinker's and one of the talker's is from the reference's."""
    answer = oracle("plain").answer(PROMPTS[title], 8, 30)
    found: dict[Any, list[torch.Tensor]] = {thinker_net: [], talker_net: []}
    for module, own in found.items():

        def draw(logits: Any, *more: Any, own: list[torch.Tensor] = own, real: Any = module.draw) -> Any:
            own.append(logits[0].clone())
            return real(logits, *more)

        monkeypatch.setattr(module, "draw", draw)
    async with Engine(spec(checkpoint("plain"))) as engine:
        await ask(engine, request(title, PROMPTS[title], 8, 30))
    pairs = ((found[thinker_net], answer.thoughts.text), (found[talker_net], answer.thoughts.codes))
    off = [
        max(float((a - b)[b.isfinite()].abs().max()) for a, b in zip(ours, theirs, strict=False))
        for ours, theirs in pairs
    ]
    assert [len(ours) for ours, _ in pairs] >= [8, 30]
    return off[0], off[1]


@pytest.mark.parametrize("title", PROMPTS)
async def test_logits_are_the_references(
    title: str, checkpoint: Folder, oracle: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert max(await worst(title, checkpoint, oracle, monkeypatch)) <= 1e-4


async def test_small_mistakes_would_show(
    checkpoint: Folder, oracle: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative controls: marks that share no position; pictures whose embeddings the talker hears."""
    with monkeypatch.context() as patched:
        patched.setattr(PairedPositions, "text", RopePositions.text)
        assert min(await worst("a video with its sound", checkpoint, oracle, patched)) > 1e-3
    with monkeypatch.context() as patched:
        patched.setattr(Feed, "hidden", lambda _self, pieces, hidden, _tapped: hidden + torch.cat(
            [one.req.state.embeddings[one.span] for one in pieces]))  # fmt: skip
        thinker, talker = await worst("audio and image", checkpoint, oracle, patched)
        assert thinker <= 1e-4 < 1e-3 < talker
