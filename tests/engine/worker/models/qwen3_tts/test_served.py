"""A server under load, over HTTP: what it speaks is what the stages say of the same text, stepped by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import Request, Sampling, load_config
from tests.app.rig import LoudnessVad, running
from tests.engine.worker.models.qwen3_tts.driven import asked, say, stages, whole
from tests.engine.worker.models.served import sounds
from tests.oracles.qwen3_tts import BIG
from tests.oracles.tiny_qwen3_tts import Sizes

CONFIG = Path(__file__).parents[5] / "configs" / "qwen3_tts_tiny.yaml"
TEXTS = ("Hello there, how are you?", "One two three.", "The rest of it is silence.")
FRAMES = 10


@pytest.mark.timeout(300)
async def test_every_answer_under_load_is_what_the_stages_say(
    checkpoint: Callable[[Sizes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which the vendor's package says, too: test_reference."""
    monkeypatch.setattr("app.http.speech.SLOWEST_CHARS_S", 1e9)  # random weights seldom stop by themselves
    monkeypatch.setattr("app.http.speech.SILENCE_S", FRAMES * 0.08)
    folder, spec = checkpoint(BIG), load_config(CONFIG)
    spec = replace(spec, weights=str(folder), launcher="inline")
    requests = tuple(Request(id="", session="", messages=(), say=text, voice="ryan") for text in TEXTS)
    async with running(spec, vad=LoudnessVad) as server:
        waves = await sounds(server.http, requests, at_once=(6,), rate=20.0, count=12)
    line = stages(folder, slots=1)
    for text, wave in zip(TEXTS, waves, strict=True):
        (said,) = await say(line, (asked(frames=FRAMES, voice="ryan", sampling=Sampling()), whole(text)))
        assert said.error == ""
        assert wave.shape == said.wave.shape
        assert np.abs(said.wave).max() > 0.01, "it would prove nothing"
        assert np.abs(wave - said.wave).max() < 1e-3, "16 bits on the wire"
