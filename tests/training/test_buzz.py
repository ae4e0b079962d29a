"""The meter of the buzz on waves whose harmonics and noise are known, and nano's voice beside its teacher's.

Beside every gate stands a control that breaks the thing and sees the gate close.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import resample_poly

from engine.training.nano import buzz, likeness, manner, meter
from engine.training.nano.periodic import BANDS, HIGH, band, harmonics_db, peaks_db, periods
from engine.training.nano.speak import Voice
from engine.worker.models.nano import source as nano_source
from engine.worker.models.nano import voice as nano_voice

SECOND = 16000
Wave = NDArray[np.float32]


def pulses(seconds: float = 2.0, f0_hz: float = 110.0) -> NDArray[np.float64]:
    """Harmonics in phase whose pitch wanders by 10 %."""
    at = np.arange(int(seconds * SECOND)) / SECOND
    phase = np.cumsum(f0_hz * (1 + 0.1 * np.sin(2 * np.pi * 1.5 * at)) / SECOND)
    return sum((np.cos(2 * np.pi * k * phase) for k in range(1, 66)), np.zeros_like(at)) / 16


def mixed(harmonics_to_noise_db: float) -> Wave:
    """Pulses whose part above 3 kHz has so much noise."""
    clean = pulses()
    noise = np.random.default_rng(0).normal(size=len(clean)).astype(np.float32)
    high, hiss = band(clean.astype(np.float32), 3000, 8000, 1), band(noise, 3000, 8000, 1)
    hiss *= np.sqrt((high**2).mean() / (hiss**2).mean()) * 10 ** (-harmonics_to_noise_db / 20)
    return (clean + hiss).astype(np.float32)


class TestPeriods:
    @pytest.mark.parametrize("known_db", [6, 0, -6])
    def test_noise_of_a_known_level_is_measured(self, known_db: float) -> None:
        found = harmonics_db([periods(mixed(known_db))])
        assert np.abs(found[HIGH:6] - known_db).max() < 1.5, found
        assert found[:2].min() > 15

    def test_a_click_in_each_period_has_peaks_and_noise_has_none(self) -> None:
        clicks, hiss = (peaks_db([periods(mixed(known_db))])[3:6] for known_db in (30, -6))
        assert clicks.min() > 2.5
        assert hiss.max() < 0

    @pytest.mark.parametrize("wave", [np.zeros(SECOND), np.random.default_rng(0).normal(size=SECOND), np.zeros(10)])
    def test_what_has_no_voice_has_no_periods(self, wave: NDArray[np.float64]) -> None:
        found = periods(wave.astype(np.float32))
        assert found.repeats.shape == (0, BANDS)

    def test_a_profile_is_no_distance_from_itself(self) -> None:
        same = buzz.profiles([periods(mixed(0))])
        assert buzz.farthest_db(same, same) == 0
        assert buzz.farthest_db(same, buzz.profiles([periods(mixed(8))])) > buzz.BAR_DB


class TestLikeness:
    def test_a_wave_is_nothing_from_itself_and_much_from_another(self) -> None:
        rng = np.random.default_rng(1)
        low = likeness.cepstra(band(rng.normal(size=SECOND).astype(np.float32), 0, 2000, 1).astype(np.float32))
        high = likeness.cepstra(band(rng.normal(size=SECOND).astype(np.float32), 3000, 8000, 1).astype(np.float32))
        assert likeness.distance_db(low, low) < 1e-3
        assert likeness.distance_db(low, low[::2]) < 0.5 * likeness.distance_db(low, high)


class TestManner:
    def test_silences_and_levels_are_measured(self) -> None:
        tone = 0.1 * np.sin(2 * np.pi * 200 * np.arange(SECOND // 2) / SECOND)
        gap = np.zeros(SECOND * 3 // 10)
        wave = np.concatenate([gap, tone, gap, tone]).astype(np.float32)
        assert abs(manner.lead_ms(wave) - 300) <= 10
        assert abs(manner.pause_ms(wave) - 300) <= 20
        assert abs(manner.loudness_db(wave) - 20 * np.log10(0.1 / np.sqrt(2))) < 0.5

    def test_nano_begins_at_once(self, voice: Voice) -> None:
        assert max(manner.lead_ms(spoken(voice, text)) for text in buzz.texts()[::10]) <= 120


@pytest.fixture(scope="module")
def voice() -> Voice:
    return Voice()


def spoken(voice: Voice, text: str) -> Wave:
    return resample_poly(voice.say(text), 2, 3).astype(np.float32)


def test_the_evaluation_sets_are_what_they_are_said_to_be() -> None:
    assert [len(meter.sentences(name)) for name in meter.GENRES] == [40] * 5
    assert len({text for name in meter.SETS for text in meter.sentences(name)}) == 230
    known = json.loads(meter.TEACHER.read_text())
    for scores in (known[voice] for voice in nano_voice.VOICES):
        assert [len(scores[name]) for name in meter.SETS] == [len(meter.sentences(name)) for name in meter.SETS]


class TestNano:
    """From text, a twelfth of the sentences: a decibel less exact than all of them, with which the bar is measured."""

    def test_it_is_as_periodic_as_its_teacher(self, voice: Voice) -> None:
        assert buzz.farthest_db(buzz.stored()["rms"], profiles_of(voice)) <= buzz.BAR_DB + 1

    def test_control_without_noise_in_its_harmonics_it_buzzes(
        self, voice: Voice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        render = nano_source.ExcitationSource.render

        def clean(source: nano_source.ExcitationSource, controls: Wave) -> Wave:
            quieter = np.zeros(controls.shape[1], np.float32)
            quieter[1 + nano_source.BANDS : 1 + 2 * nano_source.BANDS] = 3
            return render(source, controls - quieter)

        monkeypatch.setattr(nano_source.ExcitationSource, "render", clean)
        assert buzz.farthest_db(buzz.stored()["rms"], profiles_of(voice)) > buzz.BAR_DB + 1


def profiles_of(voice: Voice, every: int = 12) -> dict[str, list[float]]:
    return buzz.profiles([periods(spoken(voice, text)) for text in buzz.texts()[::every]])
