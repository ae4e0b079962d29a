"""Speech recognizers with real weights: recordings of sentences, noise, and files that are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from engine.chunk import Transcript
from engine.core import MIC_RATE_HZ, Pcm
from engine.deployment.model_catalog import model_of
from engine.errors import WeightsError
from engine.training.nano.conditions import pink
from engine.training.nano.distance import edits
from engine.worker.asr.whole_clips import WholeClips
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from tests.engine.worker.asr.test_whole_clips import chunks, speaking
from tests.real.conftest import WeightsOf

pytestmark = pytest.mark.real

SPOKEN = Path(__file__).parents[1] / "data" / "spoken"
WRONG = {"moonshine-tiny-en": 0.45, "whisper-base": 0.2, "whisper-tiny-en": 0.3}
"""Upper bounds for the share of wrong words: a synthetic voice says lists of words, which is harder than sentences."""
VOICE = "slt"
CLIPS = 12


@pytest.fixture(scope="module", params=WRONG)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def ears(name: str, weights_of: WeightsOf) -> WholeClips:
    return stage_of(name, weights_of(name))


def stage_of(name: str, folder: Path) -> WholeClips:
    stage = make(model_of(name).use, "ears", 0, StageConfig(weights=folder, threads=2))
    assert isinstance(stage, WholeClips)
    return stage


def heard(stage: WholeClips, pcm: Pcm) -> str:
    """Return the final transcript of a clip."""
    req = speaking(stage, pcm)
    req.ended = True
    [transcript] = chunks(stage, req)
    assert isinstance(transcript, Transcript)
    assert transcript.final
    assert transcript.understood == bool(transcript.text)
    return transcript.text


def words(text: str) -> list[str]:
    return "".join(letter for letter in text.lower() if letter.isalnum() or letter == " ").split()


def test_recordings_are_understood(name: str, ears: WholeClips) -> None:
    wrong = count = 0
    recordings = [one for one in json.loads((SPOKEN / "index.json").read_text()) if one["voice"] == VOICE]
    for spoken in recordings[:CLIPS]:
        pcm, rate_hz = soundfile.read(SPOKEN / spoken["file"], dtype="int16")
        assert rate_hz == MIC_RATE_HZ
        expected = words(spoken["text"])
        wrong += edits(expected, words(heard(ears, np.asarray(pcm, np.int16))))
        count += len(expected)
    print(f"{name}: {100 * wrong / count:.1f} % of {count} words are wrong")
    assert wrong <= WRONG[name] * count


@pytest.mark.parametrize("level_db", [-40, -30, -20])
def test_noise_is_not_understood(ears: WholeClips, level_db: int) -> None:
    for seconds in (1.5, 3.0, 8.0):
        noise = pink(round(seconds * MIC_RATE_HZ), np.random.default_rng(1))
        noise *= 32768 * 10 ** (level_db / 20) / np.sqrt(np.square(noise).mean())
        assert heard(ears, noise.clip(-32768, 32767).astype(np.int16)) == ""


def test_a_truncated_file_is_one_sentence(name: str, weights_of: WeightsOf, tmp_path: Path) -> None:
    for path in weights_of(name).iterdir():
        (tmp_path / path.name).symlink_to(path)
    largest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    data = largest.read_bytes()
    largest.unlink()
    largest.write_bytes(data[: len(data) // 2])
    with pytest.raises(WeightsError) as caught:
        stage_of(name, tmp_path)
    assert "\n" not in str(caught.value)
