"""A server under load, over HTTP: every answer is the sound of the reference's codes."""

from __future__ import annotations

import numpy as np
import pytest

from app.bench import subject
from engine.worker.models.qwen2_5_omni.code2wav import Code2Wav
from engine.worker.stage import StageConfig
from tests.engine.worker.models.qwen2_5_omni.cases import Folder, Reference
from tests.engine.worker.models.qwen2_5_omni.test_sound import SEED, streamed
from tests.engine.worker.models.served import questions, sounds

ASKED = ("Hello, how are you today?", "Count: one two three", "What do you see?")
CODES, TOKENS = 40, 6
CHANGES = {"server.limits.answer_s": CODES * 0.02, "server.limits.answers_share": 1.0}


@pytest.mark.timeout(300)  # a server is started, on whatever machine
async def test_every_answer_under_load_is_the_references(checkpoint: Folder, oracle: Reference) -> None:
    folder, reference = checkpoint("plain"), oracle("plain")
    with subject.running("qwen2_5_omni_tiny", changes={"weights": str(folder), **CHANGES}) as server:
        waves = await sounds(server.url, questions(ASKED, TOKENS, SEED), at_once=(4,), rate=20.0, count=6)
    stage, compared = Code2Wav(StageConfig(folder, slots=1)), 0
    for text, wave in zip(ASKED, waves, strict=True):
        said = reference.answer([("user", [text])], TOKENS, CODES)
        codes = said.codes[:, 0].astype(np.int64)
        compared += len(codes)
        sound = streamed(stage, [[len(codes)]], codes)[0]
        assert wave.shape == sound.shape
        assert np.abs(wave - sound).max() < 1e-3, "16 bits on the wire"
    assert compared > 40, "it would prove nothing"
