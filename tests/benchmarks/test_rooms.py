"""Simulated rooms: the same seed gives the same scene, and its parts have the levels and delays that they state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.realtime.input.echo_finder import REACH, WINDOW, find_echo
from benchmarks.rooms import (
    LEVEL,
    NOISES,
    ROOMS,
    Conditions,
    Line,
    Samples,
    assistant,
    drifted,
    impulse_response,
    scene,
)
from engine import MIC_RATE_HZ
from engine.training.nano.conditions import level, speech_level

PEOPLE = [Line("", f"speaker {n % 2}", "it", wave) for n, wave in enumerate(assistant()[:8])]
SILENT = Conditions(echo_db=None, pauses_s=(1.0, 2.0))


def decay_s(response: Samples) -> float:
    """Return the reverberation time, from the energy that is left after each sample (5 to 25 dB below its start)."""
    left = np.cumsum(np.square(response[::-1]))[::-1]
    left_db = 10 * np.log10(left / left[0])
    return 3 * (np.argmax(left_db < -25) - np.argmax(left_db < -5)) / MIC_RATE_HZ


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_rooms_reverberation_lasts_as_long_as_it_says(room: object) -> None:
    assert decay_s(impulse_response(room, room.television)) == pytest.approx(room.decay_s, rel=0.35)  # type: ignore[attr-defined]


def test_the_same_seed_gives_the_same_scene() -> None:
    conditions = Conditions(noise="babble")
    first, again, other = (scene(conditions, PEOPLE, PEOPLE, 12, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.microphone, again.microphone)
    assert not np.array_equal(first.microphone, other.microphone)


@pytest.mark.parametrize("delay_ms", [50, 400])
def test_the_echo_is_as_late_and_as_loud_as_it_should_be(delay_ms: float) -> None:
    made = scene(Conditions(delay_ms=delay_ms), (), (), 12, seed=1)
    assert speech_level(made.microphone / 32768) == pytest.approx(LEVEL, rel=0.1)
    end = made.answers[0][1]
    echo = find_echo(made.microphone[end - WINDOW : end], made.playback[end - WINDOW - REACH : end])
    assert echo is not None
    assert echo.delay == pytest.approx(delay_ms * MIC_RATE_HZ / 1000, abs=20)
    assert made.delay == round(delay_ms * MIC_RATE_HZ / 1000)


def test_the_user_is_where_the_scene_says() -> None:
    made = scene(SILENT, PEOPLE, (), 20, seed=1)
    assert len(made.said) > 2
    said = [level(made.user[one.start : one.end] / 32768) for one in made.said]
    pauses = [
        level(made.user[one.end + MIC_RATE_HZ // 2 : after.start] / 32768)
        for one, after in zip(made.said, made.said[1:], strict=False)
    ]
    assert min(said) > 10 * max(pauses)


@pytest.mark.parametrize("noise", NOISES)
def test_each_noise_has_its_level(noise: str) -> None:
    conditions = replace(SILENT, noise=noise, noise_db=-5.0)
    made = scene(conditions, (), PEOPLE, 8, seed=1)
    assert level(made.microphone / 32768) == pytest.approx(LEVEL * 10 ** (-5 / 20), rel=0.1)


def test_a_faster_clock_ends_earlier() -> None:
    wave = np.zeros(200_000)
    wave[100_000] = 1
    assert np.argmax(drifted(wave, 50)) == pytest.approx(100_000 - 5, abs=1)
