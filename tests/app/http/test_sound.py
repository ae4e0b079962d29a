"""Every format is a file that a decoder of somebody else's reads back, streamed or whole."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
import pytest

from app.http.sound import Format, encoded, encoder, samples
from engine import SPEAKER_RATE_HZ

WAVE = (0.3 * np.sin(2 * np.pi * 300 * np.arange(SPEAKER_RATE_HZ) / SPEAKER_RATE_HZ)).astype(np.float32)
COMPRESSED: list[Format] = ["mp3", "opus", "aac", "flac"]


def streamed(format: Format, size: int = 1920) -> list[bytes]:
    one = encoder(format)
    return [*(one.push(WAVE[at : at + size]) for at in range(0, len(WAVE), size)), one.end()]


def decoded(data: bytes) -> Any:
    """Float samples at SPEAKER_RATE_HZ."""
    resampler = av.AudioResampler(format="flt", layout="mono", rate=SPEAKER_RATE_HZ)
    with av.open(io.BytesIO(data), "r") as file:
        frames = [out for frame in file.decode(audio=0) for out in resampler.resample(frame)]
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in [*frames, *resampler.resample(None)]])


def likeness(sound: Any) -> float:
    """The best correlation of its middle with WAVE, over one period: a codec may add a delay."""
    return max(
        float(np.corrcoef(sound[at : at + SPEAKER_RATE_HZ // 2], WAVE[: SPEAKER_RATE_HZ // 2])[0, 1])
        for at in range(4000, 4080)
    )


@pytest.mark.parametrize("format", [*COMPRESSED, "wav"])
@pytest.mark.parametrize("whole", [False, True])
def test_it_is_read_back(format: Format, whole: bool) -> None:
    sound = decoded(encoded(WAVE, format) if whole else b"".join(streamed(format)))
    assert abs(len(sound) - len(WAVE)) < 0.12 * SPEAKER_RATE_HZ  # what an MP3 or AAC encoder pads with
    assert likeness(sound) > 0.98


def test_another_sound_is_not_taken_for_it() -> None:
    """The control of the test above."""
    assert likeness(np.roll(WAVE, 7) * np.linspace(-1, 1, len(WAVE))) < 0.9


@pytest.mark.parametrize("format", COMPRESSED)
def test_it_leaves_as_it_is_made(format: Format) -> None:
    """After half of the sound, nearly half of the bytes have left."""
    pieces = streamed(format)
    assert sum(map(len, pieces[: len(pieces) // 2])) > 0.3 * sum(map(len, pieces))


def test_a_wav_says_its_length_only_when_it_is_known() -> None:
    whole, stream = encoded(WAVE, "wav"), b"".join(streamed("wav"))
    assert int.from_bytes(whole[40:44], "little") == 2 * len(WAVE)
    assert stream[40:44] == stream[4:8] == b"\xff" * 4
    assert whole[44:] == stream[44:] == encoded(WAVE, "pcm") == samples(WAVE)


@pytest.mark.parametrize("format", [*COMPRESSED, "wav", "pcm"])
def test_an_answer_without_sound_breaks_no_encoder(format: Format) -> None:
    one = encoder(format)
    assert len(one.push(WAVE[:0]) + one.end()) < 10_000  # a FLAC leaves room for tags


def test_what_is_too_loud_is_clipped() -> None:
    assert np.frombuffer(samples(np.array([2.0, -2.0], np.float32)), "<i2").tolist() == [32767, -32767]
