"""What the tests of Qwen3-Omni ask: conversations of text, sound, pictures and video."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.worker.omni import thinker_net
from tests.oracles.qwen3_omni import Answer, Oracle, Turn, Video
from tests.oracles.talk import Said

Folder = Callable[[str], Path]
Reference = Callable[[str], Oracle]

RNG = np.random.default_rng(7)
SYSTEM: Turn = ("system", ["You are a helpful assistant."])
TONE = (9000 * np.sin(np.arange(25_600) / 16_000 * 2 * np.pi * 440 * np.linspace(1, 1.5, 25_600))).astype(np.int16)
SHORT = RNG.integers(-4000, 4000, 5_000, dtype=np.int16)  # less than the second that the encoder takes at a time
PICTURE = RNG.integers(0, 255, (96, 128, 3), dtype=np.uint8)
CLIP = RNG.integers(0, 255, (5, 60, 90, 3), dtype=np.uint8)
TALL = RNG.integers(0, 255, (130, 40, 3), dtype=np.uint8)

PROMPTS: dict[str, list[Turn]] = {
    "text": [SYSTEM, ("user", ["Hello, how are you today?"])],
    "bare": [("user", ["Count: one two three"])],
    "history": [
        SYSTEM,
        ("user", ["What do you see?"]),
        ("assistant", [300, 12, 390, 301, 7]),
        ("user", ["And  now?\n\nTell me "]),
    ],
    "audio": [SYSTEM, ("user", ["What is this?", TONE])],
    "image": [SYSTEM, ("user", [PICTURE, "What is in this picture?"])],
    "audio and image": [SYSTEM, ("user", [TONE, PICTURE, "Tell me."])],
    "media in several turns": [
        SYSTEM,
        ("user", [SHORT, "and", TALL]),
        ("assistant", [77, 400, 33]),
        ("user", [PICTURE, TONE]),
    ],
    "video": [SYSTEM, ("user", [Video(CLIP, 2.0), "What happens?"])],
}
SOUNDING = Video(CLIP[:4], 3.0, TONE)
VIDEOS: dict[str, list[Turn]] = {
    "an odd number of frames": [("user", ["Look:", Video(CLIP[:3], 1.5), TONE])],
    "a video with its sound": [SYSTEM, ("user", [SOUNDING, "What is it?"])],
    "its sound is longer": [SYSTEM, ("user", [Video(CLIP[:2], 2.0, TONE), "What is it?"])],
    "a picture before": [("user", [PICTURE, SOUNDING])],
    "a picture after": [("user", [SOUNDING, "and", PICTURE, "?"])],
    "two turns": [("user", [SOUNDING]), ("assistant", [77, 400]), ("user", [Video(CLIP[2:4], 2.0, SHORT), "Then?"])],
}


@contextmanager
def noted_logits(monkeypatch: pytest.MonkeyPatch) -> Generator[list[torch.Tensor]]:
    """The logits of which a thinker draws each token while the block lasts."""
    found: list[torch.Tensor] = []
    draw = thinker_net.draw

    def drawn(logits: torch.Tensor, *more: Any) -> Any:
        found.append(logits[0].clone())
        return draw(logits, *more)

    with monkeypatch.context() as patched:
        patched.setattr(thinker_net, "draw", drawn)
        yield found


def compare(said: Said, answer: Answer, heard: np.ndarray) -> tuple[int, int, float]:
    """The rule: identical up to the first step at which the reference's own choice hung by a thread. How many tokens
    and how many codes were, and how far the farthest sample is."""
    calls, alike = answer.thoughts.close_calls(), [0, 0]
    for i, (kind, ours, theirs) in enumerate((
        ("text", np.array(said.ids), np.array(answer.ids)),
        ("codes", said.codes, answer.codes),
    )):  # fmt: skip
        same = min(calls[kind], default=max(len(ours), len(theirs)))
        assert ours[:same].tolist() == theirs[:same].tolist(), kind
        assert calls[kind] or ours.shape == theirs.shape, kind
        alike[i] = ours[:same].size
    assert said.wave.shape == heard.shape
    farthest = float(np.abs(said.wave - heard).max())
    assert farthest <= 1e-4
    return alike[0], alike[1], farthest
