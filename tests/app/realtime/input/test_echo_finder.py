"""An echo is found with its delay and level, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from app.realtime.input.echo_finder import REACH, WINDOW, Echo, find_echo
from app.realtime.input.playback_timeline import PlaybackTimeline
from engine.audio.resampler import resample
from engine.core import MIC_RATE_HZ, Pcm
from tests.app.realtime.input.echoes import late, voice

SPOKEN = Path(__file__).parents[3] / "data" / "spoken"
SECONDS = (REACH + WINDOW) / 16_000


def found(microphone: Pcm, playback: Pcm) -> Echo | None:
    return find_echo(microphone[-WINDOW:], playback)


@pytest.mark.parametrize("delay", [0, 800, 6400, REACH])
@pytest.mark.parametrize("gain", [0.05, 1.0])
def test_an_echo_is_found_with_its_delay_and_level(delay: int, gain: float) -> None:
    playback = voice(SECONDS)
    echo = found(late(playback, delay, gain), playback)
    assert echo is not None
    assert echo.delay == pytest.approx(delay, abs=2)
    assert echo.gain_db == pytest.approx(20 * np.log10(gain), abs=1)


@pytest.mark.parametrize("part", [0.25, 0.5, 0.75])
def test_a_delay_is_found_to_a_part_of_a_sample(part: float) -> None:
    playback = voice(SECONDS)
    timeline = PlaybackTimeline(len(playback))
    timeline.playing(playback, 2000)
    echo = found(timeline.interpolated(1 - part, len(playback)), playback)
    assert echo is not None
    assert echo.delay == pytest.approx(1999 + part, abs=0.1)


def test_it_is_found_below_a_user_who_is_as_loud() -> None:
    playback = voice(SECONDS)
    echo = found(late(playback, 2000) + late(voice(SECONDS, seed=3), 0), playback)
    assert echo is not None
    assert echo.delay == pytest.approx(2000, abs=2)


@pytest.mark.parametrize("seed", range(20))
def test_a_user_alone_is_no_echo(seed: int) -> None:
    assert found(voice(SECONDS, seed=seed + 1), voice(SECONDS)) is None


def recordings(first: int) -> Pcm:
    """Return six spoken requests with a second of digital silence before each, at MIC_RATE_HZ."""
    parts: list[Pcm] = []
    for path in sorted(SPOKEN.glob("*.ogg"))[first : first + 6]:
        wave: Any
        wave, rate_hz = soundfile.read(path, dtype="float32")
        parts += [np.zeros(MIC_RATE_HZ, np.int16), (resample(wave, rate_hz, MIC_RATE_HZ) * 32767).astype(np.int16)]
    return np.concatenate(parts)


def test_a_user_who_begins_and_ends_within_a_window_is_no_echo() -> None:
    """The cut ends of a window correlate with the beginnings of words."""
    microphone, playback = recordings(0), recordings(100)
    ends = range(REACH + WINDOW, min(len(microphone), len(playback)), 640)
    assert [find_echo(microphone[end - WINDOW : end], playback[end - WINDOW - REACH : end]) for end in ends] == [
        None
    ] * len(ends)


def tones(samples: int, *, hz: float, every: int, long: int) -> Pcm:
    """Return tones of ``long`` samples that begin and stop abruptly, one in ``every`` samples."""
    at = np.arange(samples)
    return np.where(at % every < long, 6000 * np.sin(2 * np.pi * hz * at / MIC_RATE_HZ), 0).astype(np.int16)


@pytest.mark.parametrize("start", range(1000, WINDOW, 1000))
def test_tones_are_no_echo(start: int) -> None:
    """Their clicks match at every delay, and a short tone matches the beginning of any other."""
    playback = tones(REACH + WINDOW, hz=247, every=1280, long=1040)
    user = np.concatenate([np.zeros(start, np.int16), tones(WINDOW - start, hz=300, every=WINDOW, long=WINDOW)])
    assert find_echo(user, playback) is None
    assert find_echo(user[::-1], playback) is None


@pytest.mark.parametrize("silent", ["microphone", "playback", "both"])
def test_silence_is_no_echo(silent: str) -> None:
    quiet = np.zeros(REACH + WINDOW, np.int16)
    microphone = quiet if silent != "playback" else voice(SECONDS)
    assert found(microphone, quiet if silent != "microphone" else voice(SECONDS)) is None
