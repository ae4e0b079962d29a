"""Codes and sound are the vendor's: every kind of voice, both layouts, tiny random checkpoints, greedy, float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile

from engine.worker.models.qwen3_tts.recording import Recordings
from engine.worker.models.qwen3_tts.source import Qwen3TtsSource
from engine.worker.stage import StageConfig
from tests.engine.worker.models.qwen3_tts.driven import asked, letters, say, stages
from tests.oracles.qwen3_tts import BASE, CASES, ENVIRONMENT, Case, ask
from tests.oracles.tiny_qwen3_tts import Sizes

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def vendors(
    checkpoint: Callable[[Sizes], Path], recording: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Sizes], dict[str, np.ndarray]]:
    """What the vendor's package says of all cases of a checkpoint."""
    if not ENVIRONMENT.ready:
        pytest.skip(f"the reference is not made: python tests/conformance/environments.py {ENVIRONMENT.name}")
    folder = tmp_path_factory.mktemp("vendor")
    return cache(lambda sizes: ask(checkpoint(sizes), [one for one in CASES if one.sizes == sizes], recording, folder))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_codes_are_identical_to_qwen_ttss_and_the_sound_is_the_same(
    case: Case, checkpoint: Callable[[Sizes], Path], recording: Path, vendors: Callable[[Sizes], dict[str, np.ndarray]]
) -> None:
    theirs = vendors(case.sizes)
    line = stages(checkpoint(case.sizes), **case.ours(recording))
    (said,) = await say(line, (asked(frames=case.frames, voice=case.voice), letters(case.text, 3)))
    assert said.error == ""
    codes = theirs[f"{case.name}.codes"]
    before = len(theirs.get(f"{case.name}.reference", ()))
    assert said.codes.tolist() == codes[before:].tolist()
    wave = theirs[f"{case.name}.wave"][-len(said.wave) :]  # the vendor's cut may be a sample off, by rounding
    assert abs(len(theirs[f"{case.name}.wave"]) - len(said.wave)) <= 1
    assert np.abs(wave).max() > 0.01, "it would prove nothing"
    print(f"{case.name}: {len(said.codes)} frames, the sound within {np.abs(said.wave - wave).max():.1e}")
    np.testing.assert_allclose(said.wave, wave, rtol=0, atol=1e-4)


def test_a_recording_becomes_the_frames_and_the_embedding_of_qwen_tts(
    checkpoint: Callable[[Sizes], Path], recording: Path, vendors: Callable[[Sizes], dict[str, np.ndarray]]
) -> None:
    theirs, wave = vendors(BASE), np.asarray(soundfile.read(recording, dtype="float32")[0], np.float32)
    clones = CASES[-1].ours(recording)["clones"]
    encoders = Recordings(Qwen3TtsSource(StageConfig(checkpoint(BASE), options={"clones": clones})))
    assert encoders.frames(wave).tolist() == theirs[f"{CASES[-1].name}.reference"].tolist()
    np.testing.assert_allclose(encoders.speaker(wave), theirs[f"{CASES[-1].name}.speaker"], rtol=0, atol=1e-5)
