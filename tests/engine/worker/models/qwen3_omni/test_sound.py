"""However the frames are cut, the sound is the same."""

from __future__ import annotations

import numpy as np
import pytest

from engine.worker.codec import Window
from engine.worker.models.qwen3_omni.code2wav import Code2Wav
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.worker.models.qwen3_omni.cases import PROMPTS, RNG, Folder, Reference
from tests.oracles.talk import request


class Steady:
    """A chunk policy for tests: always so many frames."""

    def __init__(self, frames: int) -> None:
        self.frames = frames

    def size(self, count: int) -> int:
        return self.frames

    def hurry(self) -> bool:
        return False


@pytest.mark.seed("A4.2", "A4.3", "A4.7")
@pytest.mark.parametrize("name", ["wide", "deep"])
def test_any_cut_of_the_frames_gives_the_same_sound(name: str, checkpoint: Folder, oracle: Reference) -> None:
    reference = oracle(name)
    config = reference.model.config.code2wav_config
    codes = RNG.integers(0, config.codebook_size, (180, config.num_quantizers), dtype=np.int16)
    whole = reference.sound(codes)
    stage = Code2Wav(StageConfig(checkpoint(name), slots=3))
    cuts = {0: [1] * 180, 2: [1, 2, 3, 5, 8, 25, 100, 36], 1: [180]}
    reqs = {slot: StageRequest(request("t", PROMPTS["bare"]), slot, Steady(1)) for slot in cuts}
    waves: dict[int, list[np.ndarray]] = {slot: [] for slot in cuts}
    for slot, req in reqs.items():
        stage.open(req)
        ends = np.cumsum(cuts[slot])
        req.pending.extend(Window(codes[end - n : end]) for n, end in zip(cuts[slot], ends, strict=True))
        req.ended = True
    while any(not req.done for req in reqs.values()):
        batch = [req for req in reqs.values() if not req.done]
        for req, chunks in zip(batch, stage.step(batch), strict=True):
            waves[req.slot] += [chunk.wave for chunk in chunks]  # type: ignore[union-attr]
    assert len(waves[0][0]) == 1365, "the first frame is short by the lead of 555 samples"
    for slot in cuts:
        wave = np.concatenate(waves[slot])
        assert len(wave) == len(whole) == 180 * 1920 - 555
        assert np.abs(wave - whole).max() <= 1e-4


def test_a_cut_without_memory_would_be_heard(checkpoint: Folder, oracle: Reference) -> None:
    """The negative control of the test above."""
    reference = oracle("wide")
    codes = RNG.integers(0, 256, (8, 16), dtype=np.int16)
    parts = [reference.sound(codes[:4]), reference.sound(codes[4:])]
    whole = reference.sound(codes)
    assert len(np.concatenate(parts)) != len(whole)
