"""The conditions of the ears' measurement do what they say."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import MIC_RATE_HZ, Pcm
from engine.training.nano.conditions import BARS, CONDITIONS, clipped, far, in_a_room, with_noise


@pytest.fixture(scope="module")
def speech() -> Pcm:
    """A tone that is on for half of the time."""
    t = np.arange(MIC_RATE_HZ) / MIC_RATE_HZ
    return (8000 * np.sin(2 * np.pi * 300 * t) * (t % 0.5 < 0.25)).astype(np.int16)


def level(wave: np.ndarray) -> float:
    return 20 * np.log10(np.sqrt(np.square(wave.astype(float)).mean()))


@pytest.mark.parametrize("snr_db", [20.0, 10.0, 5.0])
def test_noise_is_as_loud_as_asked_for(speech: Pcm, snr_db: float) -> None:
    noise = with_noise(speech, snr_db).astype(float) - speech
    loud = speech[np.abs(speech) > 0]
    assert level(loud) - level(noise) == pytest.approx(snr_db, abs=0.5)


def test_a_room_goes_on_after_the_voice(speech: Pcm) -> None:
    quiet = slice(int(0.27 * MIC_RATE_HZ), int(0.3 * MIC_RATE_HZ))
    assert np.abs(speech[quiet]).max() == 0
    assert np.abs(in_a_room(speech)[quiet]).max() > 100


def test_low_and_clipped(speech: Pcm) -> None:
    assert level(speech) - level(far(speech)) == pytest.approx(30, abs=1)
    flat = [np.mean(np.abs(wave) == np.abs(wave).max()) for wave in (speech, clipped(speech))]
    assert flat[0] < 0.02 < 0.04 < flat[1]


def test_every_condition_keeps_the_length_and_repeats(speech: Pcm) -> None:
    assert set(BARS) < set(CONDITIONS)
    for worsened in CONDITIONS.values():
        assert worsened(speech).shape == speech.shape
        assert worsened(speech).dtype == np.int16
        assert np.array_equal(worsened(speech), worsened(speech))
