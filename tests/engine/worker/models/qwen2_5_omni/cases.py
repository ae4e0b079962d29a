"""What the tests of Qwen2.5-Omni ask: the conversations of Qwen3-Omni's tests, and a video that lasts some chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import EngineSpec, Request
from engine.worker.omni import thinker_net
from engine.worker.talker import net as talker_net
from tests.engine.worker.models.qwen3_omni import cases
from tests.engine.worker.models.qwen3_omni.cases import CLIP, RNG, SOUNDING, SYSTEM
from tests.oracles import talk
from tests.oracles.qwen2_5_omni import Oracle
from tests.oracles.qwen3_omni import Answer, Turn, Video
from tests.oracles.talk import Said

Folder = Callable[[str], Path]
Reference = Callable[[str], Oracle]
Drawn = tuple[list[torch.Tensor], list[torch.Tensor]]

LONG = RNG.integers(-4000, 4000, 72_000, dtype=np.int16)
"""Four and a half seconds: three windows of the encoder, and three chunks of a video."""
PROMPTS: dict[str, list[Turn]] = {
    "text": cases.PROMPTS["text"],
    "history": cases.PROMPTS["history"],
    "audio and image": cases.PROMPTS["audio and image"],
    "media in several turns": cases.PROMPTS["media in several turns"],
    "a video": [SYSTEM, ("user", [Video(CLIP, 2.0), "What happens?", LONG])],
    "a video with its sound": [SYSTEM, ("user", [Video(CLIP, 1.0, LONG), "What is it?"]), ("assistant", [77, 400]),
                               ("user", [SOUNDING, "And now?"])],
}  # fmt: skip


def spec(folder: Path, **options: Any) -> EngineSpec:
    return talk.spec(folder, model="qwen2_5_omni", **options)


def request(id: str, turns: list[Turn], tokens: int = 8, codes: int = 60, **more: Any) -> Request:
    """A greedy request."""
    own: dict[str, Any] = {"max_audio_s": 0.02 * codes} | more
    return talk.request(id, turns, tokens, **own)


@contextmanager
def drawn_from() -> Iterator[Drawn]:
    """Note the logits of every draw of the thinker's tokens and of the talker's codes."""
    found: Drawn = [], []
    with pytest.MonkeyPatch.context() as patch:
        for module, own in zip((thinker_net, talker_net), found, strict=True):

            def draw(logits: Any, *more: Any, own: list[torch.Tensor] = own, real: Any = module.draw) -> Any:
                own.append(logits[0].clone())
                return real(logits, *more)

            patch.setattr(module, "draw", draw)
        yield found


def farthest(drawn: Drawn, answer: Answer) -> tuple[float, float]:
    """The farthest that a logit of the thinker's and one of the talker's is from the reference's."""
    pairs = zip(drawn, (answer.thoughts.text, answer.thoughts.codes), strict=True)
    text, codes = (
        max(float((a - b)[b.isfinite()].abs().max()) for a, b in zip(ours, theirs, strict=False))
        for ours, theirs in pairs
    )
    return text, codes


def compare(said: Said, answer: Answer) -> tuple[int, int]:
    """The rule: identical up to the first step at which the reference's own choice hung by a thread. Returns how many
    tokens and codes that were."""
    calls, compared = answer.thoughts.close_calls(), list[int]()
    for kind, ours, theirs in (
        ("text", np.array(said.ids), np.array(answer.ids)),
        ("codes", said.codes.reshape(-1, 1), answer.codes),
    ):
        same = min(calls[kind], default=max(len(ours), len(theirs)))
        assert ours[:same].tolist() == theirs[:same].tolist(), kind
        assert calls[kind] or ours.shape == theirs.shape, kind
        compared.append(min(same, len(ours)))
    return compared[0], compared[1]
